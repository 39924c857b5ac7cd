"""The rule for times: hand-made pairs, properties, and how often it is wrong, exactly counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jitwarm.gate.rule import (
    FLOOR_S,
    FLOOR_SHARE,
    LEAST_PAIRS,
    PAIRS,
    judge,
    smallest_found,
)

seconds = st.floats(0.5, 20.0, allow_nan=False)
sides = st.integers(1, 20).flatmap(
    lambda n: st.tuples(*(st.lists(seconds, min_size=n, max_size=n),) * 2)
)


def steady(ratio, pairs=PAIRS, base=2.0):
    return [base] * pairs, [base * ratio] * pairs


@pytest.mark.parametrize(
    ("ratio", "decision"),
    [
        (1.0, "SAME"),
        (1.019, "SAME"),  # below the floor of 2 %
        (1.021, "SAME"),  # 42 ms: below the floor of 50 ms
        (1.026, "SLOWER"),
        (1.10, "SLOWER"),
        (2.0, "SLOWER"),
        (0.98, "SAME"),
        (0.979, "SAME"),
        (0.97, "FASTER"),
        (0.5, "FASTER"),
    ],
)
def test_without_noise(ratio, decision):
    found = judge(*steady(ratio))
    assert found.decision == decision
    assert found.change == pytest.approx(ratio - 1)
    assert (found.low, found.high) == pytest.approx((ratio - 1, ratio - 1))
    assert (found.pairs, found.spread, found.needed) == (PAIRS, pytest.approx(0, abs=1e-9), 8)
    assert (found.base_s, found.head_s) == (2.0, 2.0 * ratio)


def test_the_absolute_floor_is_in_seconds():
    assert judge(*steady(1.2, base=FLOOR_S / 0.21)).decision == "SAME"
    assert judge(*steady(1.2, base=FLOOR_S / 0.19)).decision == "SLOWER"


def test_the_floor_is_a_share_of_the_effect():
    assert judge(*steady(1.026), effect=0.20).decision == "SAME"
    assert judge(*steady(1.026, base=20.0), effect=0.05).decision == "SLOWER"
    assert judge(*steady(1.026), effect=0.20).floor == 0.20 * FLOOR_SHARE


def test_outliers_alone_are_no_slowdown():
    base, head = steady(1.0)
    head[3], head[7], base[9] = 9.0, 4.0, 3.0
    assert judge(base, head).decision == "SAME"


def test_noise_that_hides_the_effect_is_no_pass_and_says_how_many_pairs():
    head = [2.0 * ratio for ratio in (0.8, 1.25) * 7]
    found = judge([2.0] * 14, head)
    assert found.decision == "NOT-ENOUGH-SAMPLES"
    assert (found.low, found.high) == pytest.approx((-0.2, 0.25))
    # 14 * ((2.326 + 1.282) * (0.3308 * 1.2533 / sqrt 14) / ln(1.1 / 1.02))^2 = 392.5
    assert found.needed == 394


def test_a_large_slowdown_is_found_through_much_noise():
    head = [2.0 * ratio for ratio in (1.6, 2.5) * 7]
    assert judge([2.0] * 14, head).decision == "SLOWER"


@pytest.mark.parametrize("pairs", [1, 2, LEAST_PAIRS - 1])
def test_too_few_pairs_are_never_enough(pairs):
    assert judge(*steady(1.0, pairs)).decision == "NOT-ENOUGH-SAMPLES"
    assert judge(*steady(3.0, pairs)).decision == "NOT-ENOUGH-SAMPLES"
    assert judge(*steady(3.0, LEAST_PAIRS)).decision == "SLOWER"


@given(sides, st.sampled_from([2.0, 4.0, 1024.0]))
def test_the_unit_of_time_does_not_matter(both, factor):
    base, head = both
    found = judge(base, head)
    scaled = judge([t * factor for t in base], [t * factor for t in head])
    for name in ("change", "low", "high", "spread"):
        assert getattr(scaled, name) == pytest.approx(getattr(found, name), abs=1e-9)


@given(sides)
def test_swapped_sides_turn_the_sign(both):
    base, head = both
    found, swapped = judge(base, head), judge(head, base)
    assert math.log1p(swapped.change) == pytest.approx(-math.log1p(found.change), abs=1e-9)
    assert math.log1p(swapped.low) == pytest.approx(-math.log1p(found.high), abs=1e-9)
    if swapped.decision == "SLOWER":
        assert found.decision != "SLOWER"


@given(st.integers(LEAST_PAIRS, 30), seconds)
def test_equal_pairs_never_alarm(pairs, time):
    assert judge([time] * pairs, [time] * pairs).decision == "SAME"


@given(sides, st.sampled_from([0.01, 0.1, 0.5]))
def test_what_passes_excludes_the_effect(both, effect):
    """A pass is a statement: the slowdown that was asked about is outside of the interval."""
    base, head = both
    found = judge(base, head, effect)
    assume(found.decision in {"SAME", "FASTER"})
    assert found.high < max(effect, FLOOR_S / found.base_s) + 1e-9


@given(sides)
def test_the_smallest_slowdown_found_is_where_the_verdict_turns(both):
    base, head = both
    assume(len(base) >= LEAST_PAIRS)
    turn = float(smallest_found(np.array([base]), np.array([head]))[0])
    for by, expected in ((1e-6, True), (-1e-6, False)):
        slowed = [t * (1 + turn + by) for t in head]
        assert (judge(base, slowed).decision == "SLOWER") is expected


# Spread of a run, heavy tails, true slowdown -> verdicts of 1,000 comparisons of `PAIRS` pairs.
SIMULATED = [
    (0.01, False, 0.00, {"SAME": 1000}),
    (0.01, False, 0.10, {"SLOWER": 1000}),
    (0.035, False, 0.00, {"SAME": 1000}),
    (0.035, False, 0.10, {"SLOWER": 995, "NOT-ENOUGH-SAMPLES": 4, "SAME": 1}),
    (0.035, True, 0.00, {"SAME": 999, "NOT-ENOUGH-SAMPLES": 1}),
    (0.035, True, 0.10, {"SLOWER": 980, "NOT-ENOUGH-SAMPLES": 18, "SAME": 2}),
    (0.35, False, 0.00, {"NOT-ENOUGH-SAMPLES": 939, "SAME": 58, "SLOWER": 2, "FASTER": 1}),
]


@pytest.mark.parametrize(("spread", "tails", "slowdown", "expected"), SIMULATED)
def test_how_often_it_is_wrong_on_simulated_noise(spread, tails, slowdown, expected):
    """A pair spreads by 1.41 times a run: 0.035 is the 5 % that docs/compare.md promises for."""
    generator = np.random.default_rng(7)
    noise = generator.normal(0, spread, (1000, 2, PAIRS))
    if tails:
        noise *= np.where(generator.random(noise.shape) < 0.05, 4, 1)
    times = 2.0 * np.exp(noise)
    counts = {}
    for base, head in times:
        decision = judge(base, head * (1 + slowdown)).decision
        counts[decision] = counts.get(decision, 0) + 1
    assert counts == expected
