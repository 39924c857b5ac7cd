"""Arguments of a registration: a hashable stand-in to compare them by, and a copy of their own.

A registration is compared when it is made and used when the plan is made; what a layer does to its
lists in between must change neither.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Hashable
from typing import Any

from jitwarm import keys
from jitwarm.errors import KeyValueError


def token(value: object) -> Hashable:
    """A hashable stand-in of an argument: equal for equal arguments of the same types.

    Containers and dataclasses are taken apart. An object that is no value is compared by its own
    `==` if it can be hashed, else it is equal to itself alone.
    """
    if isinstance(value, list | tuple):
        return (type(value), *map(token, value))
    if isinstance(value, dict):
        return (dict, frozenset((token(name), token(item)) for name, item in value.items()))
    if isinstance(value, set):
        return (set, frozenset(map(token, value)))
    if _is_mutable_dataclass(value):
        fields = dataclasses.fields(value)  # type: ignore[arg-type] # it is one, and no type
        return (type(value), *(token(getattr(value, field.name)) for field in fields))
    try:
        return keys.exact(value)
    except KeyValueError:
        return _Object(value)


def snapshot(value: Any) -> Any:
    """A copy of an argument's containers and dataclasses; what they hold in the end is shared."""
    if type(value) in (list, tuple, set):
        return type(value)(map(snapshot, value))
    if type(value) is dict:
        return {name: snapshot(item) for name, item in value.items()}
    if _is_mutable_dataclass(value):
        copied = copy.copy(value)
        for field in dataclasses.fields(copied):
            setattr(copied, field.name, snapshot(getattr(value, field.name)))
        return copied
    return value


def _is_mutable_dataclass(value: Any) -> bool:
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and not type(value).__dataclass_params__.frozen  # type: ignore[attr-defined]
    )


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
