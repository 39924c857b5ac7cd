"""The expander behind `_trace_dispatch`: every point of a search space goes through dispatch.

There is one evaluator, Python itself. The code of dispatch is looked at only to leave out axes that
it never reads, which cannot change the result. Order: row groups first, then keyword axes, the last
varies fastest; keys in first-seen order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from jitwarm import keys
from jitwarm.contract.signatures import DeclaredInputs, declared_inputs
from jitwarm.declare.domains import RowGroup, axis_values
from jitwarm.declare.spelling import nearest
from jitwarm.errors import (
    DeclarationError,
    EmptySpaceError,
    MissingInputError,
    UnknownInputError,
    WrongKindError,
)


@dataclass(slots=True)
class PointCount:
    """How many points were dispatched since `counting_points` began."""

    points: int = 0


_count: ContextVar[PointCount | None] = ContextVar("jitwarm_points", default=None)


@contextmanager
def counting_points() -> Iterator[PointCount]:
    """Count the points of every expansion inside the block; an outer count gets them too."""
    outer, inner = _count.get(), PointCount()
    token = _count.set(inner)
    try:
        yield inner
    finally:
        _count.reset(token)
        if outer is not None:
            outer.points += inner.points


def add_points(points: int) -> None:
    """Add to the count of the block that is counting, if there is one."""
    counter = _count.get()
    if counter is not None:
        counter.points += points


@dataclass(frozen=True, slots=True)
class _Slot:
    """One factor of the product: the input names it sets and the tuples of values it takes."""

    names: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]


def expand(
    kernel: str,
    key_type: type,
    dispatch: Callable[..., Any],
    *,
    groups: tuple[object, ...] = (),
    when: Callable[..., Any] | None = None,
    axes: Mapping[str, object],
) -> list[Any]:
    """The distinct keys of a search space, in first-seen order.

    `groups` are row groups, `axes` map input names to domains, `when` drops the points for which it
    is false. Inputs that only `when` declares do not reach dispatch. Raises `UnknownInputError`,
    `MissingInputError`, `EmptySpaceError`, `WrongKindError` and `DeclarationError`, each with the
    kernel's name; what dispatch or `when` raises passes through.
    """
    inputs = declared_inputs(kernel, dispatch)
    condition = declared_inputs(kernel, when) if when is not None else None
    slots = _slots(kernel, groups, axes)
    _check_names(kernel, [name for slot in slots for name in slot.names], inputs, condition)
    fields = _field_names(key_type)
    slots, fixed = _prune(slots, inputs, condition)
    names = [name for slot in slots for name in slot.names]

    def reaches_dispatch(name: str) -> bool:
        if name in inputs.names or condition is None:
            return True
        return inputs.variadic and (name not in condition.names or name in fields)

    passed = [reaches_dispatch(name) for name in names]
    constants = {name: value for name, value in fixed.items() if reaches_dispatch(name)}
    tested = [name for name in names if condition is not None and condition.takes(name)]
    untouched = {
        name: value
        for name, value in fixed.items()
        if condition is not None and condition.takes(name)
    }
    found: dict[Hashable, Any] = {}
    tried = dispatched = 0
    for parts in itertools.product(*(slot.rows for slot in slots)):
        point = dict(zip(names, itertools.chain.from_iterable(parts), strict=True))
        tried += 1
        if when is not None and not when(**{name: point[name] for name in tested}, **untouched):
            continue
        dispatched += 1
        if not all(passed):
            point = {
                name: value
                for (name, value), keep in zip(point.items(), passed, strict=True)
                if keep
            }
        key = dispatch(**point, **constants)
        if not isinstance(key, key_type):
            raise _not_a_key(kernel, key_type, key, point)
        found.setdefault(keys.exact(key), key)
    add_points(dispatched)
    if not dispatched:
        raise EmptySpaceError(
            f"{kernel}: _when rejected all {tried} points, so nothing would be warmed; "
            "correct the predicate, or return NoKeys('reason') if this kernel needs no key here"
        )
    return list(found.values())


def _slots(kernel: str, groups: tuple[object, ...], axes: Mapping[str, object]) -> list[_Slot]:
    slots: list[_Slot] = []
    seen: set[str] = set()
    for group in groups:
        if not isinstance(group, RowGroup):
            raise WrongKindError(
                f"{kernel}: a positional input of the expander is a {type(group).__name__}; "
                "wrap rows in zip_inputs(...) and pass every other axis by name"
            )
        slots.append(_Slot(group.names, group.rows))
    slots += [
        _Slot((name,), [(item,) for item in axis_values(kernel, name, axes[name])]) for name in axes
    ]
    for slot in slots:
        for name in slot.names:
            if name in seen:
                raise DeclarationError(f"{kernel}: input {name!r} is specified more than once")
            seen.add(name)
    return slots


def _check_names(
    kernel: str, given: list[str], inputs: DeclaredInputs, condition: DeclaredInputs | None
) -> None:
    known = inputs.names + (condition.names if condition is not None else ())
    for name in given:
        if not inputs.takes(name) and not (condition is not None and condition.takes(name)):
            raise UnknownInputError(
                f"{kernel}: axis {name!r} is an input of neither dispatch nor "
                f"_when{nearest(name, known)} "
                f"(declared: {', '.join(known) or 'none'})"
            )
    for what, declared in (("dispatch", inputs), ("_when", condition)):
        missing = (
            [name for name in declared.names if name in declared.required and name not in given]
            if declared
            else []
        )
        if missing:
            raise MissingInputError(
                f"{kernel}: {what} requires {', '.join(map(repr, missing))}, which no axis "
                "supplies; "
                f"given: {', '.join(given) or 'none'}"
            )


def _prune(
    slots: list[_Slot], inputs: DeclaredInputs, condition: DeclaredInputs | None
) -> tuple[list[_Slot], dict[str, object]]:
    """Take inputs that nothing reads out of the product.

    They keep their first value, since dispatch may require one.
    """

    def is_read(name: str) -> bool:
        for declared in (inputs, condition):
            if declared is None:
                continue
            if name in declared.read or (declared.variadic and name not in declared.names):
                return True
        return False

    kept: list[_Slot] = []
    fixed: dict[str, object] = {}
    for slot in slots:
        read = [is_read(name) for name in slot.names]
        if all(read):
            kept.append(slot)
            continue
        fixed |= {
            name: value
            for name, value, live in zip(slot.names, slot.rows[0], read, strict=True)
            if not live
        }
        if any(read):
            kept.append(
                _Slot(
                    tuple(itertools.compress(slot.names, read)),
                    [tuple(itertools.compress(r, read)) for r in slot.rows],
                )
            )
    return kept, fixed


def _field_names(key_type: type) -> frozenset[str]:
    return frozenset(
        (*getattr(key_type, "__dataclass_fields__", ()), *getattr(key_type, "_fields", ()))
    )


def _not_a_key(
    kernel: str, key_type: type, key: object, point: Mapping[str, object]
) -> DeclarationError:
    at = ", ".join(f"{name}={value!r}" for name, value in point.items())
    return DeclarationError(
        f"{kernel}: dispatch({at}) returned a {type(key).__qualname__}, not a "
        f"{key_type.__qualname__}"
    )
