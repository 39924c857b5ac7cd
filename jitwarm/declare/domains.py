"""Domains: what an input of dispatch may be at run time, and how an axis of a search space expands.

A keyword of the expander is one axis. Lists and tuples are alternatives, `WarmupIntRange` and
`WarmupChoices` expand, and a number, string, bytes, dtype or frozen dataclass is one value.
Everything else that can be iterated is an error: whether a set, a range or a named tuple was meant
as one value or as several cannot be seen from here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast

from jitwarm.errors import DeclarationError, EmptySpaceError


class Chooser(Protocol):
    """Takes the place of domains with one of their values: see `jitwarm.contract.cases`."""

    def choose(self, domain: Any) -> Any:
        """The value that stands for `domain` now."""


# While a function in the "cases" style runs, a domain that it makes is one of its values.
chooser: ContextVar[Chooser | None] = ContextVar("jitwarm_chooser", default=None)


@dataclass(frozen=True, slots=True)
class WarmupIntRange:
    """Every integer of a half-open range, as in `range(start, stop, step)`.

    `advance(v)` gives the value after `v` instead of a step: it hops from one specialisation
    boundary to the next, for example to the next power of two plus one (1, 2, 3, 5, 9, 17, ...).
    Nothing is sampled and nothing is capped. Mistakes are reported when the range is expanded,
    together with the kernel's name.
    """

    start: int
    stop: int
    step: int = 1
    advance: Callable[[int], int] | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """The range; one of its integers for a function in the "cases" style."""
        return cast("Self", _made(cls, args, kwargs))

    def values(self) -> Sequence[int]:
        """The integers of the range.

        Raises ValueError for a step beside `advance` and for an `advance` that does not increase.
        """
        if self.advance is None:
            return range(self.start, self.stop, self.step)
        if self.step != 1:
            raise ValueError(f"both step={self.step} and advance are given: use one of them")
        found, value = [], self.start
        while value < self.stop:
            found.append(value)
            following = self.advance(value)
            if not following > value:
                raise ValueError(
                    f"advance({value}) gave {following}: it must return a greater value"
                )
            value = following
        return found


@dataclass(frozen=True, slots=True, init=False)
class WarmupChoices:
    """An explicit finite set of values, each taken as it is: a tuple in it is one value."""

    values: tuple[object, ...]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """The choices; one of their values for a function in the "cases" style."""
        return cast("Self", _made(cls, args, kwargs))

    def __init__(self, *values: object) -> None:
        """The values in the order in which they shall be tried."""
        object.__setattr__(self, "values", values)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Inputs that vary in lockstep: `names`, and one tuple of values in that order for each row."""

    names: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


def zip_inputs(*rows: Mapping[str, object]) -> RowGroup:
    """Inputs that vary together, one mapping of names to values for each combination.

    Values are taken as they are: this is also the way to pass a tuple as one value. Raises
    `DeclarationError` for no rows, a row that is no mapping, an empty row, a name that is no
    string, rows with different names, and a domain inside a row.
    """
    if not rows:
        raise DeclarationError(
            "zip_inputs: no rows were given; give at least one mapping of input names to values"
        )
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DeclarationError(
                f"zip_inputs: row {index} is a {type(row).__name__}, not a mapping of input names "
                "to values"
            )
    names = tuple(rows[0])
    if not names:
        raise DeclarationError("zip_inputs: the first row is empty; name at least one input")
    for index, row in enumerate(rows):
        for name, value in row.items():
            if not isinstance(name, str):
                raise DeclarationError(
                    f"zip_inputs: row {index} has the name {name!r}; input names are strings"
                )
            if isinstance(
                value, WarmupIntRange | WarmupChoices | RowGroup | range | set | Iterator
            ):
                raise DeclarationError(
                    f"zip_inputs: row {index} holds a {type(value).__name__} under {name!r}, and "
                    "values in a row do not expand; "
                    "write one row for each value or make it an axis of its own"
                )
        if set(row) != set(names):
            raise DeclarationError(
                f"zip_inputs: row {index} names {sorted(row)}, the first row names {sorted(names)}"
            )
    return RowGroup(names, tuple(tuple(row[name] for name in names) for row in rows))


def axis_values(kernel: str, axis: str, value: object) -> Sequence[object]:
    """The values of one axis, in order.

    Raises `EmptySpaceError` if there is none and `DeclarationError` for something that is neither a
    domain, alternatives, nor one value; both name `kernel` and `axis`.
    """
    values: Sequence[object]
    if isinstance(value, WarmupIntRange):
        try:
            values = value.values()
        except ValueError as error:
            raise DeclarationError(f"{kernel}: axis {axis!r}: {error}") from error
    elif isinstance(value, WarmupChoices):
        values = value.values
    elif type(value) in (list, tuple):
        values = cast("Sequence[object]", value)  # by exact type: a subclass is handled below
    elif _is_one_value(value):
        return (value,)
    else:
        raise DeclarationError(
            f"{kernel}: axis {axis!r} is a {type(value).__name__}: {_advice(value)}"
        )
    if not values:
        raise EmptySpaceError(
            f"{kernel}: axis {axis!r} has no values ({value!r}), so nothing would be warmed; "
            "return NoKeys('reason') if this kernel needs no key here"
        )
    if not isinstance(values, range):
        for item in values:
            if isinstance(item, WarmupIntRange | WarmupChoices | RowGroup):
                raise DeclarationError(
                    f"{kernel}: axis {axis!r} holds a {type(item).__name__} among its values; "
                    "domains do not nest"
                )
    return values


def _made(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A new domain, which Python then initialises, or the value that the context takes for it."""
    domain: Any = object.__new__(kind)
    current = chooser.get()
    if current is None:
        return domain
    domain.__init__(*args, **kwargs)
    return current.choose(domain)


def _is_one_value(value: object) -> bool:
    kind = type(value)
    if isinstance(value, RowGroup):
        return False
    if isinstance(value, str | bytes) or (dataclasses.is_dataclass(value) and kind is not type):
        return True
    if kind.__name__ == "constexpr" and kind.__module__.startswith("triton."):
        return True  # it can be iterated only to fail
    # Looked up in the classes: hasattr(kind, ...) would find the iterator of an Enum's metaclass.
    return not any("__iter__" in base.__dict__ for base in kind.__mro__)


def _advice(value: object) -> str:
    if hasattr(value, "_fields"):
        return "put it into WarmupChoices(...) or a row of zip_inputs(...) if it is one value"
    if isinstance(value, RowGroup):
        return "pass a row group as a positional argument"
    return (
        "use a tuple, WarmupChoices(...) or WarmupIntRange(...) for alternatives, "
        "WarmupChoices(value) if it is one value"
    )
