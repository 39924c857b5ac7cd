"""The rule for times: slower, faster, the same, or not enough pairs to tell.

    d_i   = ln(head_i / base_i), a pair of neighbouring runs in ABBA order
    m     = median of d, [low, high] = its bootstrap interval at level 98 %
    SLOWER              low  >  ln(1 + floor)  and  base * (e^m - 1) >= 0.05 s
    FASTER              high < -ln(1 + floor)  and  base * (1 - e^m) >= 0.05 s
    NOT-ENOUGH-SAMPLES  neither, and high >= ln(1 + effect): the effect is not excluded
    SAME                neither, and it is

`effect` is the slowdown that was asked about (10 %; where that is less than 0.05 s, what makes
0.05 s). `floor` is a fifth of what was asked about; but where four times as many pairs would be
needed to find that with 90 % power, it is the whole of it, so that noise alone is no alarm. The
constants were chosen with `measurements/power.py`; docs/compare.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from jitwarm.gate.statistics import Array, bootstrap_interval, medians, spreads

LEVEL = 0.98
EFFECT = 0.10
FLOOR_SHARE = 0.2
FLOOR_S = 0.05
PAIRS = 16
# Eight pairs lie on one side of the truth in 1 of 256 comparisons; fewer have no 98 % interval.
LEAST_PAIRS = 8
# The exact interval takes memory by the square of the pairs, and its formula ends at 1,028.
MOST_PAIRS = 1000
POWER = 0.90
# Pairs that spread by twice of what the effect allows would need four times as many.
TOO_NOISY = 4
# Quantiles of the normal distribution: of one side of the interval, and of the power.
Z_LEVEL, Z_POWER = 2.326, 1.282

Decision = Literal["SLOWER", "FASTER", "SAME", "NOT-ENOUGH-SAMPLES"]


class Judgement(msgspec.Struct, frozen=True):
    """What the rule says of the pairs, as fractions (0.1: head takes 10 % longer).

    `spread` is the robust standard deviation of one pair. `needed` is about how many pairs would
    find `effect` with 90 % power at this spread. `floor` is what is never called slower.
    """

    decision: Decision
    pairs: int
    effect: float
    floor: float
    change: float
    low: float
    high: float
    spread: float
    base_s: float
    head_s: float
    needed: int


def log_ratios(base: Sequence[float], head: Sequence[float]) -> Array:
    """ln(head / base) of each pair. Times are positive seconds."""
    return np.log(np.asarray(head, dtype=np.float64)) - np.log(np.asarray(base, dtype=np.float64))


def judge(base: Sequence[float], head: Sequence[float], effect: float = EFFECT) -> Judgement:
    """Judge pairs of seconds: `base[i]` and `head[i]` were measured side by side.

    At least one pair; fewer than `LEAST_PAIRS` are never enough.
    """
    ratios = log_ratios(base, head)
    base_s = float(np.median(base))
    found = _Bounds(ratios, np.float64(base_s), effect)
    low, high, floor = float(found.low), float(found.high), float(found.floor)
    middle = float(medians(ratios))
    moved_s = abs(base_s * math.expm1(middle))
    decision: Decision
    if len(ratios) < LEAST_PAIRS:
        decision = "NOT-ENOUGH-SAMPLES"
    elif low > floor and moved_s >= FLOOR_S:
        decision = "SLOWER"
    elif high < -floor and moved_s >= FLOOR_S:
        decision = "FASTER"
    elif high >= float(found.asked):
        decision = "NOT-ENOUGH-SAMPLES"
    else:
        decision = "SAME"
    return Judgement(
        decision=decision,
        pairs=len(ratios),
        effect=effect,
        floor=math.expm1(floor),
        change=math.expm1(middle),
        low=math.expm1(low),
        high=math.expm1(high),
        spread=float(spreads(ratios)),
        base_s=base_s,
        head_s=float(np.median(head)),
        needed=int(found.needed),
    )


class _Bounds:
    """The interval of each row of log ratios, and what it is held against, in logarithms too.

    `asked` is the slowdown that was asked about, `needed` the pairs that find it with 90 % power:
    even, `LEAST_PAIRS` or more.
    """

    def __init__(self, ratios: Array, base_s: Array | np.float64, effect: float) -> None:
        count = ratios.shape[-1]
        self.low, self.high = bootstrap_interval(ratios, LEVEL)
        self.asked = np.log1p(np.maximum(effect, FLOOR_S / base_s))
        least = math.log1p(FLOOR_SHARE * effect)
        # The interval of a few pairs is often too narrow by chance, so that of normal pairs with
        # their spread counts too: their median has 1.2533 times the standard error of their mean.
        normal = Z_LEVEL * 1.2533 * spreads(ratios) / math.sqrt(count)
        error = np.maximum((self.high - self.low) / 2, normal) / Z_LEVEL
        # An interval gets narrower with the root of the pairs.
        needed = count * ((Z_LEVEL + Z_POWER) * error / (self.asked - least)) ** 2
        self.needed = np.maximum(LEAST_PAIRS, 2 * np.ceil(needed / 2))
        self.floor = np.where(self.needed > TOO_NOISY * count, self.asked, least)


def smallest_found(base: Array, head: Array, effect: float = EFFECT) -> Array:
    """For many comparisons at once (rows: comparisons, columns: pairs) of one code with itself: by
    which factor less 1 head must be slowed, exactly, for the rule to say SLOWER. 0 or less is a
    false alarm.

    Slowing head moves the interval as a whole, so no grid of slowdowns has to be tried.
    """
    ratios = np.log(head) - np.log(base)
    base_s = np.median(base, axis=-1)
    bounds = _Bounds(ratios, base_s, effect)
    by_seconds = np.log1p(FLOOR_S / base_s) - medians(ratios)
    found: Array = np.expm1(np.maximum(bounds.floor - bounds.low, by_seconds))
    return found
