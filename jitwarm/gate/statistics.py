"""The statistics of paired times: a median with its bootstrap interval. No processes, no clocks.

The bootstrap of a median needs no random numbers. Of n sorted values, the chance that a resample of
n has its middle at given ranks is a closed formula (two ranks where n is even), so the distribution
that 10,000 seeded resamples would only approach is computed exactly, and two runs agree.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# 1.4826 times the median absolute deviation is the standard deviation where values are normal.
NORMAL_MAD = 1.4826


def bootstrap_interval(values: Array, level: float) -> tuple[Array, Array]:
    """The percentile interval of the median over the last axis, at `level` (0.98: 1 % a side).

    The interval of the negated values is exactly the negated interval.
    """
    tail = (1 - level) / 2
    return _lower(values, tail), -_lower(-values, tail)


def medians(values: Array) -> Array:
    """The median over the last axis."""
    return np.median(values, axis=-1)


def spreads(values: Array) -> Array:
    """The robust spread over the last axis: the standard deviation of what is not an outlier."""
    from_middle = np.abs(values - medians(values)[..., None])
    return NORMAL_MAD * medians(from_middle)


def _lower(values: Array, tail: float) -> Array:
    """The smallest median of a resample that, with all below it, has more than `tail` chance."""
    first, second, chance = _middles(values.shape[-1])
    ordered = np.sort(values, axis=-1)
    middles = (ordered[..., first] + ordered[..., second]) / 2
    order = np.argsort(middles, axis=-1, kind="stable")
    reached = np.cumsum(chance[order], axis=-1) > tail
    place = np.take_along_axis(order, reached.argmax(axis=-1)[..., None], axis=-1)
    found: Array = np.take_along_axis(middles, place, axis=-1)[..., 0]
    return found


@functools.cache
def _middles(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """The pairs of ranks (from 0) that the middle of a resample can have, and the chance of each.

    An odd count has one middle: both ranks are the same.
    """
    middle = (count + 1) // 2
    at_most = np.array([_tail(count, middle, rank / count) for rank in range(count + 1)])
    one_rank = np.diff(at_most)
    if count % 2:
        ranks = np.arange(count)
        return ranks, ranks, one_rank
    first, second = np.triu_indices(count)
    # Neither middle may be crossed: `middle` draws up to the first rank, as many from the second.
    low = ((first + 1) / count) ** middle - (first / count) ** middle
    high = ((count - second) / count) ** middle - ((count - second - 1) / count) ** middle
    chance = np.where(first < second, math.comb(count, middle) * low * high, 0.0)
    both = one_rank - np.bincount(first, chance, minlength=count)
    chance[first == second] = np.maximum(both, 0.0)  # 0 but for rounding at the last rank
    return first, second, chance


def _tail(count: int, least: int, chance: float) -> float:
    """The chance of at least `least` successes in `count` trials."""
    return math.fsum(
        math.comb(count, k) * chance**k * (1 - chance) ** (count - k)
        for k in range(least, count + 1)
    )
