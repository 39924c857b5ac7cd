"""Arguments of a registration: a hashable stand-in to compare them by, and a copy of their own.

A registration is compared when it is made and used when the plan is made; what a layer does to its
lists in between must change neither.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from jitwarm import keys
from jitwarm.errors import KeyValueError

_MOST_HOLDERS = 64  # deeper than any configuration, and well above Python's own limit
_Walked = tuple[Hashable, Any]


def token(value: object) -> Hashable:
    """A hashable stand-in of an argument: equal for equal arguments of the same types.

    Containers and dataclasses are taken apart. An object that is no value is compared by its own
    `==` if it can be hashed, else it is equal to itself alone. So is one that cannot be taken
    apart: that holds itself, or lacks a field.
    """
    return _walk(value, ())[0]


def snapshot(value: Any) -> Any:
    """A copy of an argument's containers and dataclasses; what they hold in the end is shared, and
    so is what cannot be taken apart.
    """
    return _walk(value, ())[1]


class _Ring(Exception):  # noqa: N818 - not an error: it leads back to the object that holds itself
    def __init__(self, value: object) -> None:
        self.value = value


def _walk(value: Any, holders: tuple[Any, ...]) -> _Walked:
    """The token of a value and its copy; `holders` are the objects around it, outermost first."""
    parts = _parts(value)
    if parts is None:
        return _atom(value), value
    if any(value is holder for holder in holders):
        raise _Ring(value)
    if len(holders) == _MOST_HOLDERS:
        return _Same(value), value
    try:
        return parts(value, (*holders, value))
    except _Ring as ring:
        if ring.value is not value:
            raise
    except Exception:  # a field that was never set, a copy that is refused: no layer's fault
        return _Same(value), value
    return _Same(value), value


def _parts(value: Any) -> Callable[[Any, tuple[Any, ...]], _Walked] | None:
    """How a value is taken apart; None for one that is not."""
    if isinstance(value, list | tuple):
        return _sequence
    if isinstance(value, dict):
        return _dict
    if isinstance(value, set):
        return _set
    is_dataclass = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return _dataclass if is_dataclass else None


def _sequence(value: Any, holders: tuple[Any, ...]) -> _Walked:
    kind = type(value)
    walked = [_walk(item, holders) for item in value]
    copied = value
    if kind is list or (kind is tuple and _differs(walked, value)):
        copied = kind(item for _, item in walked)
    return (kind, *(name for name, _ in walked)), copied


def _differs(walked: Iterable[_Walked], originals: Iterable[Any]) -> bool:
    """Whether a copy is another object than its original: something in it could change."""
    return any(one is not other for (_, one), other in zip(walked, originals, strict=True))


def _set(value: Any, holders: tuple[Any, ...]) -> _Walked:
    walked = [_walk(item, holders) for item in value]
    copied = {item for _, item in walked} if type(value) is set else value
    return (set, frozenset(name for name, _ in walked)), copied


def _dict(value: Any, holders: tuple[Any, ...]) -> _Walked:
    walked = [(name, _walk(item, holders)) for name, item in value.items()]
    copied = {name: copy for name, (_, copy) in walked} if type(value) is dict else value
    return (dict, frozenset((_walk(name, holders)[0], item) for name, (item, _) in walked)), copied


def _dataclass(value: Any, holders: tuple[Any, ...]) -> _Walked:
    kind = type(value)
    given = {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
    walked = [_walk(item, holders) for item in given.values()]
    by_field = (kind, *(item for item, _ in walked))
    frozen = kind.__dataclass_params__.frozen
    copied = value
    if not frozen or _differs(walked, given.values()):
        copied = copy.copy(value)
        for name, (_, item) in zip(given, walked, strict=True):
            object.__setattr__(copied, name, item)  # the only way into a frozen one
    return (_frozen(value, by_field) if frozen else by_field), copied


def _frozen(value: Any, by_field: Hashable) -> Hashable:
    """A frozen dataclass is a value, or has an equality of its own, or holds what has none."""
    try:
        return keys.exact(value)
    except KeyValueError:
        return _Object(value) if _is_hashable(value) else by_field


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except Exception:  # a stranger's hash
        return False
    return True


def _atom(value: object) -> Hashable:
    try:
        return keys.exact(value)
    except KeyValueError:
        return _Object(value)


class _Same:
    """Stands for an argument that is equal to itself alone, and keeps it alive."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class _Object:
    """Stands for an argument that is no value, and keeps it alive, so that its id stays its own."""

    __slots__ = ("hash", "value")

    def __init__(self, value: object) -> None:
        self.value = value
        try:
            self.hash = hash(value)
        except TypeError:
            self.hash = id(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Object) or type(other.value) is not type(self.value):
            return False
        if other.value is self.value:
            return True
        try:
            return bool(self.value == other.value)
        except (TypeError, ValueError, RuntimeError):  # arrays and tensors have no one answer
            return False

    def __hash__(self) -> int:
        return self.hash
