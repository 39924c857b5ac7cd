"""The points of an envelope as tables of numbers: counted, enumerated, drawn.

A table is an array [points, parameters]: a whole number as it is, one of `Values` by its place in
them. Rows are in lexicographic order of the parameters wherever a table is enumerated.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitwarm import keys
from jitwarm.errors import KeyValueError
from jitwarm.proof.classes import affines, bounds
from jitwarm.proof.envelope import Envelope, Ints
from jitwarm.proof.forms import Columns

Table = NDArray[Any]
Point = Mapping[str, Any]

CHUNK = 1 << 18
# Counting takes 5 to 20 ns a point and parameter as arrays; a `where` that takes no arrays, 0.5 us.
COUNTED = 4_000_000
COUNTED_ONE_BY_ONE = 100_000
_WIDE = 2**58  # beyond, sums of products might leave int64: Python's own integers are used


class Space:
    """The points of one envelope."""

    def __init__(self, envelope: Envelope) -> None:
        """Nothing is evaluated yet."""
        self.parameters, self._where = envelope.parameters, envelope.where
        self.names = tuple(envelope.parameters)
        self.product = math.prod(len(domain) for domain in envelope.parameters.values())
        self.dtype: Any = object if _reach(envelope) > _WIDE else np.int64
        self._columns = {
            name: _column(domain.values)
            for name, domain in envelope.parameters.items()
            if not isinstance(domain, Ints)
        }
        self._takes_arrays = True
        self._asked = _inputs(self._where, self.names)

    # Points and tables.

    def point(self, row: Sequence[Any]) -> dict[str, Any]:
        """The parameters of one row, whole numbers as Python's."""
        found: dict[str, Any] = {}
        for (name, domain), value in zip(self.parameters.items(), row, strict=True):
            found[name] = int(value) if isinstance(domain, Ints) else domain.values[int(value)]
        return found

    def integers(self, table: Table) -> Columns:
        """The columns of a table by name; those of `Values` are places, which no form uses."""
        if not self.names:
            return {"": np.zeros(len(table), np.int64)}
        return {name: table[:, place] for place, name in enumerate(self.names)}

    def allowed(self, table: Table) -> Table:
        """The rows for which `where` holds."""
        return table if self._where is None else table[self.holds(table)]

    def holds(self, table: Table) -> NDArray[np.bool_]:
        """For each row whether `where` holds."""
        if self._where is None or not len(table):
            return np.ones(len(table), np.bool_)
        if self._takes_arrays:
            try:
                return self._mask(table)
            except Exception:  # written for single numbers (`and`, `min`): asked point by point
                self._takes_arrays = False
        kept = []
        for row in table:
            point = self.point(row)
            kept.append(bool(self._where(**{name: point[name] for name in self._asked})))
        return np.array(kept, np.bool_)

    def _mask(self, table: Table) -> NDArray[np.bool_]:
        assert self._where is not None
        columns = {}
        for name in self._asked:
            column = table[:, self.names.index(name)]
            values = self._columns.get(name)
            columns[name] = column if values is None else values[column.astype(np.int64)]
        with np.errstate(all="raise"):
            mask = np.asarray(self._where(**columns))
        return np.broadcast_to(mask.astype(np.bool_), (len(table),))

    # Enumeration.

    def every(self, asked: Collection[str] | None = None) -> list[Table]:
        """Every value of each parameter, or of those in `asked`: then the first of the others.

        Only for products that are counted.
        """
        return [
            self._all(domain) if asked is None or name in asked else self._all(domain, 1)
            for name, domain in self.parameters.items()
        ]

    def _all(self, domain: Any, most: int | None = None) -> Table:
        if not isinstance(domain, Ints):
            return np.arange(len(domain))[:most]
        high = domain.high if most is None else domain.low + most - 1
        if self.dtype is object:
            return np.array(range(domain.low, high + 1), object)
        return np.arange(domain.low, high + 1)

    def ends(self, name: str, most: int) -> Table:
        """At most `most` values of a parameter: the first of them, and the last."""
        domain = self.parameters[name]
        last = domain.high if isinstance(domain, Ints) else len(domain) - 1
        first = self._all(domain, min(most, len(domain)))
        return np.array([*first[:-1], last], self.dtype)

    def tables(self, candidates: Sequence[Table]) -> Iterator[Table]:
        """The allowed points of a product of values, in order, in tables of at most `CHUNK`."""
        sizes = [len(values) for values in candidates]
        total = math.prod(sizes)
        for start in range(0, total, CHUNK):
            rest = np.arange(start, min(start + CHUNK, total))
            table = np.empty((len(rest), len(sizes)), self.dtype)
            for place in range(len(sizes) - 1, -1, -1):
                rest, index = np.divmod(rest, sizes[place])
                table[:, place] = candidates[place][index]
            yield self.allowed(table)

    def count(self) -> int | None:
        """How many points there are; None where counting them would take long.

        Parameters that `where` does not look at are multiplied, not enumerated.
        """
        if self._where is None:
            return self.product
        of = math.prod(len(self.parameters[name]) for name in self._asked)
        free = self.product // of
        if of > COUNTED:
            return None
        found = 0
        for table in self.tables(self.every(self._asked)):
            found += len(table)
            if not self._takes_arrays and of > COUNTED_ONE_BY_ONE:
                return None
        return found * free

    # Drawing.

    def drawn(self, wanted: int, random: np.random.Generator, *, most: int = 2_000_000) -> Table:
        """Up to `wanted` allowed points, each equally likely; fewer where `where` rejects nearly
        all of `most` tries.
        """
        found: list[Table] = []
        have = tried = 0
        size = max(4 * wanted, 64)
        while have < wanted and tried < most:
            columns = [self._draw(domain, size, random) for domain in self.parameters.values()]
            table = np.empty((size, len(columns)), self.dtype)
            for place, column in enumerate(columns):
                table[:, place] = column
            kept = self.allowed(table)
            found.append(kept)
            have, tried = have + len(kept), tried + size
            size = min(4 * size, CHUNK)
            if not self._takes_arrays and tried >= COUNTED_ONE_BY_ONE:
                break
        return np.concatenate(found)[:wanted]

    def _draw(self, domain: Any, size: int, random: np.random.Generator) -> Table:
        if not isinstance(domain, Ints):
            return random.integers(0, len(domain), size)
        if self.dtype is object:
            low = random.integers(0, 2**62, size).astype(object)
            drawn: Table = domain.low + (low * 2**62 + random.integers(0, 2**62, size)) % len(
                domain
            )
            return drawn
        return random.integers(domain.low, domain.high + 1, size)

    def corners(self, most: int = 64) -> Table:
        """The allowed points whose every parameter is at one of its ends, at most `most`."""
        ends = [
            sorted({domain.low, domain.high})
            if isinstance(domain, Ints)
            else sorted({0, len(domain) - 1})
            for domain in self.parameters.values()
        ]
        rows = list(itertools.islice(itertools.product(*ends), 16 * most))
        table = np.array(rows, self.dtype).reshape(len(rows), len(ends))
        return self.allowed(table)[:most]


def point_text(point: Point) -> str:
    """A point as a report shows it: `prefills=1, tokens=17`."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in point.items())


def value_text(value: Any) -> str:
    """The canonical text of a value, or what stands for one that has none."""
    try:
        return keys.canonical(value)
    except KeyValueError:
        return keys.placeholder(value)


def _reach(envelope: Envelope) -> int:
    """No parameter and no value of a form is further from 0."""
    reach = 0
    for domain in envelope.parameters.values():
        if isinstance(domain, Ints):
            reach = max(reach, abs(domain.low), abs(domain.high))
    for form in (envelope.forms or {}).values():
        for part in affines(form):
            reach = max(reach, *map(abs, bounds(part, envelope.parameters)))
    return reach


def _column(values: tuple[Any, ...]) -> NDArray[Any]:
    """Values as an array that a `where` can be written with: of numbers where all are."""
    for kind in (bool, int, float):
        if all(type(value) is kind for value in values):
            try:
                return np.array(values, kind if kind is not int else np.int64)
            except OverflowError:  # beyond int64
                break
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _inputs(where: Callable[..., Any] | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """The parameters that `where` takes; all of them where it takes any."""
    if where is None:
        return ()
    try:
        declared = inspect.signature(where).parameters.values()
    except (TypeError, ValueError):
        return names
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in declared):
        return names
    own = {parameter.name for parameter in declared}
    return tuple(name for name in names if name in own)
