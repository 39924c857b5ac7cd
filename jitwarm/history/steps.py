"""Steps in a noisy series: where its level changed by more than its noise explains.

The rule, which the page repeats in words:

* noise is taken from neighbours: 1.4826 times the median distance between one run and the next,
  divided by the square root of 2. A step moves one of these distances, so it does not hide itself.
  It is never taken below `LEAST_NOISE` of the median: a clock that repeats to 1 % is luck;
* levels of at least `SIDE` runs each are laid through the runs so that the distances to their
  medians are least, each further level costing `LIMIT` times the noise;
* of the steps between them those stay that change the median by at least `LEAST_CHANGE`, and by at
  least `LIMIT` times the noise that medians of so many runs have, times 1 + 6 / runs, because few
  runs tell little about noise. The runs next to a step have to be nearer to their own side's median
  than to the other's (one may stray, on a side of twice as many). The smallest step that is none
  goes first, and its levels become one;
* one or two last runs never make a step. If they lie that far off together, they are "open".

Below `FEW` runs nothing is judged.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

SIDE = 3
FEW = 2 * SIDE
LEAST_CHANGE = 0.05
LEAST_NOISE = 0.01
LIMIT = 4.0
# A median of n runs spreads by this, times noise / sqrt(n).
MEDIAN_SPREAD = 1.2533


@dataclass(frozen=True, slots=True)
class Level:
    """A part of a series without a step in it: places `start` up to, and without, `end`."""

    start: int
    end: int
    median: float


@dataclass(frozen=True, slots=True)
class Steps:
    """The levels of a series, oldest first, its noise, and how many last values are `open`: off
    the last level, and too few to be one.
    """

    levels: tuple[Level, ...]
    noise: float
    open: int = 0


def find_steps(values: Sequence[float]) -> Steps:
    """The levels of `values`, oldest first. One level, and no open end, where nothing is judged."""
    noise = _noise(values)
    if len(values) < FEW:
        return Steps((_level(values, 0, len(values)),) if values else (), noise)
    bounds = _confirmed(values, _fitted(values, LIMIT * noise), noise)
    levels = tuple(_level(values, a, b) for a, b in pairwise(bounds))
    return Steps(levels, noise, _open_end(values, levels[-1], noise))


def _fitted(values: Sequence[float], price: float) -> list[int]:
    """The bounds of levels, 0 and the end among them, that fit best where each has its price."""
    count = len(values)
    best = [0.0, *[math.inf] * count]
    came = [0] * (count + 1)
    for start in range(count - SIDE + 1):
        if best[start] == math.inf:
            continue
        for end, misfit in enumerate(_misfits(values[start:]), start + 1):
            total = best[start] + misfit + (price if start else 0.0)
            if end - start >= SIDE and total < best[end]:
                best[end], came[end] = total, start
    bounds = [count]
    while bounds[-1]:
        bounds.append(came[bounds[-1]])
    return bounds[::-1]


def _misfits(values: Sequence[float]) -> Iterator[float]:
    """How far the first, the first two, the first three ... values are from their median, in sum.

    Two heaps hold the halves, because 200 runs have 20,000 parts.
    """
    low: list[float] = []  # the smaller half, negated
    high: list[float] = []
    low_sum = high_sum = 0.0
    for value in values:
        moved = -heapq.heappushpop(low, -value)
        heapq.heappush(high, moved)
        low_sum, high_sum = low_sum + value - moved, high_sum + moved
        if len(high) > len(low):
            moved = heapq.heappop(high)
            heapq.heappush(low, -moved)
            low_sum, high_sum = low_sum + moved, high_sum - moved
        middle = -low[0]
        yield max(0.0, middle * (len(low) - len(high)) - low_sum + high_sum)


def _confirmed(values: Sequence[float], bounds: list[int], noise: float) -> list[int]:
    """The bounds without those that are no steps."""
    bounds = list(bounds)
    while True:
        doubtful = []
        for before, place, after in zip(bounds, bounds[1:], bounds[2:], strict=False):
            left, right = values[before:place], values[place:after]
            if not _is_step(left, right, noise):
                change = abs(statistics.median(left) - statistics.median(right))
                doubtful.append((change, place))
        if not doubtful:
            return bounds
        bounds.remove(min(doubtful)[1])


def _is_step(before: Sequence[float], after: Sequence[float], noise: float) -> bool:
    """Whether the medians differ by more than is small, and than noise explains."""
    old, new = statistics.median(before), statistics.median(after)
    change = abs(new - old)
    spread = MEDIAN_SPREAD * noise * math.sqrt(1 / len(before) + 1 / len(after))
    return (
        change > 0
        and change >= LEAST_CHANGE * abs(old)
        and change >= _limit(len(before) + len(after)) * spread
        and _holds(before[::-1], old, new)
        and _holds(after, new, old)
    )


def _holds(values: Sequence[float], own: float, other: float) -> bool:
    """Whether the runs next to a step are nearer to their own level; of many, one may stray."""
    strays = sum(abs(value - own) >= abs(value - other) for value in values[:SIDE])
    return strays <= (len(values) >= FEW)


def _limit(runs: int) -> float:
    """Noise is known the worse the fewer runs there are."""
    return LIMIT * (1 + FEW / runs)


def _open_end(values: Sequence[float], last: Level, noise: float) -> int:
    """How many of the last values (2, else 1, else 0) are all off the level before them."""
    for count in (2, 1):
        before, after = values[last.start : last.end - count], values[last.end - count : last.end]
        if len(before) < FEW - SIDE:
            continue
        middle = statistics.median(before)
        away = [value - middle for value in after]
        far = max(LEAST_CHANGE * abs(middle), _limit(len(before)) * noise)
        if all(one > far for one in away) or all(one < -far for one in away):
            return count
    return 0


def _noise(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    distances = [abs(b - a) for a, b in pairwise(values)]
    found = 1.4826 * statistics.median(distances) / math.sqrt(2)
    return max(found, LEAST_NOISE * abs(statistics.median(values)))


def _level(values: Sequence[float], start: int, end: int) -> Level:
    return Level(start, end, statistics.median(values[start:end]))
