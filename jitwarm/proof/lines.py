"""Straight lines through an envelope: what a split presumes of `where`, looked at.

Along each parameter, with the others fixed, the allowed values have to be one unbroken range: then
the kept values and the border stand for what is between them. A residue (`n % 1000 == 500`) or a
few single values break a range, and kept values may miss all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jitwarm.proof.envelope import Ints
from jitwarm.proof.space import CHUNK, Space, Table

EVALUATED = 1 << 20  # points along one parameter, in all lines together
LINES = 32
LONGEST = 1 << 24  # a longer range is looked at in windows
_AROUND = 16  # a period of classes
_SHOWN = 2_048


def lines(space: Space, random: np.random.Generator) -> Iterator[tuple[str, Table, bool]]:
    """Of each line its parameter, the allowed points at its ends (of a broken one more of them),
    and whether it is broken. Along parameters that `where` does not look at there is no border.
    """
    for place, (name, domain) in enumerate(space.parameters.items()):
        if name not in space.asked or not isinstance(domain, Ints):
            continue
        length = min(domain.size, LONGEST)
        wanted = max(2, min(LINES, EVALUATED // length))
        for row in _starts(space, place, wanted, random):
            yield name, *_line(space, place, domain, row, random)


def _starts(space: Space, place: int, wanted: int, random: np.random.Generator) -> Table:
    """Distinct points to go through, allowed or not: all the others at their lowest first."""
    low = [d.low if isinstance(d, Ints) else 0 for d in space.parameters.values()]
    high = [d.high if isinstance(d, Ints) else d.size - 1 for d in space.parameters.values()]
    ends = np.array([low, high], space.dtype)
    rows = np.concatenate([ends[:1], space.drawn(wanted // 2, random, most=10_000), ends[1:]])
    rows = np.concatenate([rows, space.tried(2 * wanted, random)])
    rows[:, place] = low[place]
    return np.array(list(dict.fromkeys(map(tuple, rows.tolist())))[:wanted], space.dtype)


def _line(
    space: Space, place: int, domain: Ints, row: Any, random: np.random.Generator
) -> tuple[Table, bool]:
    found: list[Table] = []
    is_broken, before, ranges = False, False, 0
    for start, stop in _windows(domain, random):
        table = np.tile(row, (stop - start, 1))
        table[:, place] = np.arange(stop - start).astype(space.dtype) + start
        mask = space.holds(table)
        if domain.size > LONGEST:  # what is between two windows is not known
            before, ranges = False, 0
        changes = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=np.int8(before)))
        ranges += int(np.count_nonzero(mask[changes])) if len(changes) else 0
        is_broken |= ranges > 1
        before = bool(mask[-1])
        allowed = np.flatnonzero(mask)
        if not len(allowed):
            continue
        most = _SHOWN if is_broken else _AROUND
        found += [table[allowed[:most]], table[allowed[-_AROUND:]]]
    points = np.concatenate(found) if found else np.empty((0, len(row)), space.dtype)
    return points, is_broken


def _windows(domain: Ints, random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Starts and stops: all of a range in order, of a long one 64 parts and both ends."""
    if domain.size <= LONGEST:
        for start in range(domain.low, domain.high + 1, CHUNK):
            yield start, min(start + CHUNK, domain.high + 1)
        return
    size = LONGEST >> 10
    yield domain.low, domain.low + size
    for part in range(64):
        offset = (domain.size - size) * part // 64 + int(random.integers(0, size))
        yield domain.low + offset, min(domain.low + offset + size, domain.high + 1)
    yield domain.high + 1 - size, domain.high + 1
