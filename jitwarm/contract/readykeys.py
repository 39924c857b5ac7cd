"""Keys that have been launched before, found by what they hold: for the launch path.

`keys.exact` tells every key apart and costs microseconds. Where a key is a dataclass of simple
values, a look-up of those values and a comparison of their types says the same in a fraction.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

# Values of one of these types that are equal are the same to `keys.exact`.
_SIMPLE = (bool, int, str, bytes, type(None), enum.Enum, type)


@dataclass(frozen=True, slots=True)
class ReadyKey:
    """One key: the types of its values, its `keys.exact`, its backend key and its executor."""

    types: tuple[type, ...]
    token: Hashable
    text: str
    executor: Any


class ReadyKeys:
    """Ready keys of one key type."""

    def __init__(self, kind: Any) -> None:
        """`kind` is the key type; of one that is no dataclass nothing is kept."""
        self._kind = kind
        self._values = _reader(kind)
        self._entries: dict[Any, ReadyKey] = {}

    def find(self, key: Any) -> ReadyKey | None:
        """The entry of exactly this key, if it was kept."""
        if type(key) is not self._kind or self._values is None:
            return None
        values = self._values(key)
        try:
            entry = self._entries.get(values)
        except TypeError:  # it holds a list
            return None
        if entry is not None and entry.types == tuple(map(type, values)):
            return entry
        return None

    def keep(self, key: Any, token: Hashable, text: str, executor: Any) -> None:
        """Keep a key, if it holds simple values only; of equal ones the latest."""
        if type(key) is not self._kind or self._values is None:
            return
        values = self._values(key)
        # 0.0 and -0.0 are equal and two keys; NaN is not even equal to itself.
        simple = (isinstance(v, _SIMPLE) or (type(v) is float and v * v > 0) for v in values)
        if all(simple):
            self._entries[values] = ReadyKey(tuple(map(type, values)), token, text, executor)


def _reader(kind: Any) -> Callable[[Any], tuple[Any, ...]] | None:
    """A function that returns all values of a key as a tuple."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return None
    names = [field.name for field in dataclasses.fields(kind)]
    if len(names) < 2:  # `attrgetter` of one name returns no tuple
        return lambda key: tuple(getattr(key, name) for name in names)
    return operator.attrgetter(*names)
