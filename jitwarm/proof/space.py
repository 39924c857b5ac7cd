"""The points of an envelope as tables of numbers: counted, enumerated, drawn.

A table is an array [points, parameters]: a whole number as it is, one of `Values` by its place in
them. Rows are in lexicographic order of the parameters wherever a table is enumerated.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitwarm import keys
from jitwarm.errors import DeclarationError, KeyValueError
from jitwarm.proof.classes import affines, bounds
from jitwarm.proof.envelope import Domain, Envelope, Ints
from jitwarm.proof.forms import Columns

Table = NDArray[Any]
Point = Mapping[str, Any]

CHUNK = 1 << 18
# Counting takes 5 to 20 ns a point and parameter as arrays; a `where` that takes no arrays, 0.5 us.
COUNTED = 4_000_000
COUNTED_ONE_BY_ONE = 100_000
CONFIRMED = 400  # rows whose `where` is asked alone as well, and a few of every table
CELLS = 4_000_000  # numbers of a table that is drawn at once
_WIDE = 2**58  # beyond, sums of products might leave int64: Python's own integers are used


class _Disagreement(Exception):  # noqa: N818 - control flow between two modules, no user meets it
    """`where` says something else of arrays than of the point that this names."""


class Space:
    """The points of one envelope."""

    def __init__(self, envelope: Envelope, *, by_point: bool = False) -> None:
        """Nothing is evaluated yet. `by_point`: `where` is asked for each point alone."""
        self.parameters, self._where = envelope.parameters, envelope.where
        self.names = tuple(envelope.parameters)
        self.product = math.prod(domain.size for domain in envelope.parameters.values())
        self.dtype: Any = object if _reach(envelope) > _WIDE else np.int64
        self._site = envelope.site
        self.takes_arrays = not by_point
        self._is_checked = False
        self._to_confirm = CONFIRMED
        self.asked = _inputs(envelope)

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
        """For each row whether `where` holds.

        Raises `_Disagreement` where `where` says something else of arrays than of the points
        in them, and `DeclarationError` where it fails.
        """
        if self._where is None or not len(table):
            return np.ones(len(table), np.bool_)
        if self.takes_arrays and not self._is_checked:
            self._is_checked = True
            self.holds(self._strata())
        if self.takes_arrays:
            try:
                mask = self._mask(table)
            except Exception:  # written for single numbers (`and`, `min`): asked point by point
                self.takes_arrays = False
            else:
                self._confirm(table, mask)
                return mask
        return np.array([self.admits(self.point(row)) for row in table], np.bool_)

    def admits(self, point: Point) -> bool:
        """What `where` says of one point, asked alone."""
        if self._where is None:
            return True
        try:
            return bool(_truth(self._where(**{name: point[name] for name in self.asked})))
        except Exception as error:
            raise DeclarationError(
                f"{self._site}: `where` fails at {point_text(point)}: {type(error).__name__}: "
                f"{error}"
            ) from error

    def _confirm(self, table: Table, mask: NDArray[np.bool_]) -> None:
        """Ask some rows alone, kept and rejected: ever fewer, as tables come."""
        for kept in (True, False):
            rows = np.flatnonzero(mask == kept)
            most = max(8, self._to_confirm // 2)
            self._to_confirm -= min(len(rows), most)
            for row in table[rows[:: max(1, len(rows) // most)][:most]]:
                point = self.point(row)
                if self.admits(point) != kept:
                    raise _Disagreement(point_text(point))

    def _strata(self) -> Table:
        """Rows, allowed or not: the smallest, the corners, and some of every power-of-two size."""
        smallest = itertools.islice(itertools.product(*map(_first, self.parameters.values())), 64)
        rows = list(smallest)
        table = np.array(rows, self.dtype).reshape(len(rows), len(self.names))
        random = np.random.default_rng(len(self.names))
        return np.concatenate([table, self._corners(64), self.tried(512, random)])

    def _mask(self, table: Table) -> NDArray[np.bool_]:
        """`where` of arrays of whole numbers, for each combination of the others' values."""
        assert self._where is not None
        columns: dict[str, Any] = {}
        alone = []
        for name in self.asked:
            domain, column = self.parameters[name], table[:, self.names.index(name)]
            if not isinstance(domain, Ints):
                alone.append((name, domain.values, column))
            elif max(abs(domain.low), abs(domain.high)) >= 2**31:
                columns[name] = column.astype(object)  # a product would leave int64 in silence
            else:
                columns[name] = column
        if not alone:
            return self._asked_of(columns, len(table))
        sizes = [len(values) for _, values, _ in alone]
        codes: Any = np.zeros(len(table), np.int64 if math.prod(sizes) < 2**62 else object)
        for (_, _, column), size in zip(alone, sizes, strict=True):
            codes = codes * size + column.astype(np.int64)
        _, first, group = np.unique(codes, return_index=True, return_inverse=True)
        group = group.reshape(-1)
        distinct = [[int(column[row]) for _, _, column in alone] for row in first]
        mask = np.zeros(len(table), np.bool_)
        order = np.argsort(group, kind="stable")
        ends = np.searchsorted(group[order], np.arange(len(distinct) + 1))
        for number, chosen in enumerate(distinct):
            rows = order[ends[number] : ends[number + 1]]
            values = {
                name: values[place] for (name, values, _), place in zip(alone, chosen, strict=True)
            }
            whole = {name: column[rows] for name, column in columns.items()}
            mask[rows] = self._asked_of(values | whole, len(rows))
        return mask

    def _asked_of(self, columns: Mapping[str, Any], rows: int) -> NDArray[np.bool_]:
        assert self._where is not None
        with np.errstate(all="raise"):
            return np.broadcast_to(_truth(self._where(**columns)), (rows,))

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
            return np.arange(domain.size)[:most]
        high = domain.high if most is None else domain.low + most - 1
        if self.dtype is object:
            return np.array(range(domain.low, high + 1), object)
        return np.arange(domain.low, high + 1)

    def ends(self, name: str, most: int) -> Table:
        """At most `most` values of a parameter: the first of them, and the last."""
        domain = self.parameters[name]
        last = domain.high if isinstance(domain, Ints) else domain.size - 1
        first = self._all(domain, min(most, domain.size))
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
        of = math.prod(self.parameters[name].size for name in self.asked)
        free = self.product // of
        if of > COUNTED:
            return None
        found = 0
        for table in self.tables(self.every(self.asked)):
            found += len(table)
            if not self.takes_arrays and of > COUNTED_ONE_BY_ONE:
                return None
        return found * free

    # Drawing.

    def drawn(self, wanted: int, random: np.random.Generator, *, most: int = 2_000_000) -> Table:
        """Up to `wanted` allowed points, each equally likely; fewer where `where` rejects nearly
        all of `most` tries.
        """
        found: list[Table] = []
        have = tried = 0
        limit = min(CHUNK, max(64, CELLS // max(len(self.names), 1)))
        size = min(max(wanted if self._where is None else 4 * wanted, 64), limit)
        while have < wanted and tried < most:
            columns = [self._draw(domain, size, random) for domain in self.parameters.values()]
            table = np.empty((size, len(columns)), self.dtype)
            for place, column in enumerate(columns):
                table[:, place] = column
            kept = self.allowed(table)
            found.append(kept)
            have, tried = have + len(kept), tried + size
            size = min(4 * size, limit)
            if not self.takes_arrays and tried >= COUNTED_ONE_BY_ONE:
                break
        return np.concatenate(found)[:wanted]

    def _draw(self, domain: Any, size: int, random: np.random.Generator) -> Table:
        if not isinstance(domain, Ints):
            return random.integers(0, domain.size, size)
        if self.dtype is object:
            low = random.integers(0, 2**62, size).astype(object)
            drawn: Table = (
                domain.low + (low * 2**62 + random.integers(0, 2**62, size)) % domain.size
            )
            return drawn
        return random.integers(domain.low, domain.high + 1, size)

    def tried(self, wanted: int, random: np.random.Generator) -> Table:
        """Rows, allowed or not, in which each power-of-two distance from the lowest value of a
        parameter is as likely: so are those from the highest for every eighth row, and another
        eighth is drawn evenly.
        """
        table = np.empty((wanted, len(self.names)), self.dtype)
        kinds = np.arange(wanted) % 8
        for place, domain in enumerate(self.parameters.values()):
            even = self._draw(domain, wanted, random)
            table[:, place] = even
            if not isinstance(domain, Ints):
                continue
            bits = (domain.size - 1).bit_length()
            exponents = random.permutation(np.arange(wanted) % (bits + 1)).astype(self.dtype)
            below = (1 << exponents.astype(object)) >> 1  # 0, 1, 2, 4, ...
            span = np.maximum(below, 1)
            far = (even - domain.low).astype(object) % span + below
            far = np.minimum(far, domain.size - 1).astype(self.dtype)
            table[:, place] = np.where(
                kinds == 7, even, np.where(kinds == 6, domain.high - far, domain.low + far)
            )
        return table

    def stratified(self, wanted: int, random: np.random.Generator) -> Table:
        """At most `wanted` allowed rows of every power-of-two size, and evenly drawn ones."""
        kept = self.allowed(self.tried(4 * wanted, random))
        if len(kept) < wanted:
            kept = np.concatenate([kept, self.drawn(wanted - len(kept), random)])
        return kept[:wanted]

    def corners(self, most: int = 64) -> Table:
        """The allowed points whose every parameter is at one of its ends, at most `most`."""
        return self.allowed(self._corners(16 * most))[:most]

    def _corners(self, most: int) -> Table:
        ends = [
            sorted({domain.low, domain.high})
            if isinstance(domain, Ints)
            else sorted({0, domain.size - 1})
            for domain in self.parameters.values()
        ]
        rows = list(itertools.islice(itertools.product(*ends), most))
        return np.array(rows, self.dtype).reshape(len(rows), len(ends))


def _first(domain: Domain) -> range:
    """The first places of a domain."""
    first = domain.low if isinstance(domain, Ints) else 0
    return range(first, first + min(domain.size, 4))


def _truth(said: Any) -> Any:
    """What a `where` said, as truth. `~` makes -1 and -2 of Python's False and True.

    Raises `TypeError` for other whole numbers: -2 would be true in one place and not in another.
    """
    if said is True or said is False:
        return said
    found = np.asarray(said)
    if found.dtype == object and found.ndim:
        found = np.array([_truth(one) for one in found.ravel()], np.bool_).reshape(found.shape)
    if found.dtype.kind in "iu":
        wrong = (found < -2) | (found > 1)
        if wrong.any():
            raise TypeError(f"it gives {found[wrong].ravel()[0]}, which is no truth value")
        return (found != 0) & (found != -2)
    return found.astype(np.bool_) if found.dtype != object else bool(said)


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


def _inputs(envelope: Envelope) -> tuple[str, ...]:
    """The parameters that `where` takes; all of them where it takes any.

    Raises `DeclarationError` where it wants one that there is not.
    """
    where, names = envelope.where, tuple(envelope.parameters)
    if where is None:
        return ()
    try:
        declared = inspect.signature(where).parameters.values()
    except (TypeError, ValueError):
        return names
    for one in declared:
        is_named = one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        if one.kind is one.POSITIONAL_ONLY or (
            is_named and one.default is one.empty and one.name not in names
        ):
            raise DeclarationError(
                f"{envelope.site}: `where` takes {one.name!r}, which is no parameter by name; "
                f"there are {', '.join(names) or 'none'}"
            )
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in declared):
        return names
    own = {parameter.name for parameter in declared}
    return tuple(name for name in names if name in own)
