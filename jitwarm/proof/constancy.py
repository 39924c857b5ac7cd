"""Arguments and options that change inside a split envelope although they have no form."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from jitwarm.backends.keyfields import fields_of
from jitwarm.proof.space import Point

_ABSENT = "its default"


class Varies(NamedTuple):
    """A field of the key that has the value `warmed` at one point and `seen` at another."""

    field: str
    warmed: str
    seen: str
    at: Point
    other: Point


class Constancy:
    """What the keys of a split envelope have in common; `forms` are the names that may change.

    Values of parameters that are no whole numbers are all walked, so a field may follow from them:
    it has to be constant for each combination of them.
    """

    def __init__(self, forms: Collection[str]) -> None:
        """Nothing is seen yet."""
        self._forms = frozenset(forms)
        self._first: dict[tuple[object, ...], tuple[str, Point]] = {}
        self._keys: dict[tuple[object, ...], tuple[str, Point]] = {}
        self._varies: dict[str, Varies] = {}

    def note(self, group: tuple[object, ...], keys: Sequence[str], point: Point) -> None:
        """Take over the keys of one point, whose other values are `group`."""
        for place, key in enumerate(keys):
            at = (*group, place)
            if (*at, key) in self._keys:
                continue
            self._keys[*at, key] = (key, point)
            fields = fields_of(key).together()
            known = self._first.get(at)
            if known is None:
                self._first[at] = (key, point)
                continue
            first = fields_of(known[0]).together()
            for field in first.keys() | fields.keys():
                name = field.strip("{}")
                one, other = first.get(field, _ABSENT), fields.get(field, _ABSENT)
                if one != other and name not in self._forms:
                    self._varies.setdefault(name, Varies(name, one, other, known[1], point))

    def varies(self) -> Iterator[Varies]:
        """The first change of each such field, by name."""
        yield from (self._varies[name] for name in sorted(self._varies))
