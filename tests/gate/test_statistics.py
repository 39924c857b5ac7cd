"""The interval of a median, exactly."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitwarm.gate.rule import MOST_PAIRS
from jitwarm.gate.statistics import _middles, bootstrap_interval, medians, spreads

finite = st.floats(-1.0, 1.0, allow_nan=False)
rows = st.lists(finite, min_size=1, max_size=24).map(np.array)


@pytest.mark.parametrize("count", range(1, 7))
def test_the_distribution_is_that_of_every_possible_resample(count):
    values = 2.0 ** np.arange(count)  # each pair of them has a middle of its own
    every = Counter(
        float(np.median(values[list(ranks)]))
        for ranks in itertools.product(range(count), repeat=count)
    )
    computed = Counter()
    for first, second, chance in zip(*_middles(count), strict=True):
        computed[float((values[first] + values[second]) / 2)] += float(chance)
    for middle in every | computed:
        assert computed[middle] == pytest.approx(every[middle] / count**count, abs=1e-12)


def test_as_many_pairs_as_compare_takes():
    low, high = bootstrap_interval(np.linspace(-1.0, 1.0, MOST_PAIRS), 0.98)
    # Of flat values the median has the standard error 1 / sqrt(1000); 2.326 of them are 0.0736.
    assert (float(low), float(high)) == (pytest.approx(-0.0731, abs=5e-4), -float(low))


def test_by_hand():
    # Of the 27 resamples of three values, 7 have the smallest as median, 13 the middle, 7 the last.
    values = np.array([3.0, 1.0, 2.0])
    assert [float(b) for b in bootstrap_interval(values, 0.40)] == [2.0, 2.0]  # 7/27 < 0.30
    assert [float(b) for b in bootstrap_interval(values, 0.60)] == [1.0, 3.0]  # 7/27 > 0.20


def test_eight_values_at_98_percent():
    # Medians of 1.5 or less: both middles are 1 (0.12 %), or they are 1 and 2:
    # 70/8^4 ((7/8)^4 - (6/8)^4), 0.46 %.
    low, high = bootstrap_interval(np.arange(1.0, 9.0), 0.98)
    assert (float(low), float(high)) == (2.0, 7.0)


def test_many_rows_are_judged_as_each_alone():
    values = np.random.default_rng(1).normal(size=(50, 12))
    low, high = bootstrap_interval(values, 0.98)
    for row, a, b in zip(values, low, high, strict=True):
        assert bootstrap_interval(row, 0.98) == (a, b)


def test_spread_of_normal_values_is_their_deviation_and_outliers_do_not_move_it():
    values = np.random.default_rng(2).normal(0, 0.05, 20_001)
    assert float(spreads(values)) == pytest.approx(0.05, rel=0.03)
    values[:1000] = 40.0
    assert float(spreads(values)) == pytest.approx(0.05, rel=0.12)


@given(rows)
def test_negated_values_have_the_negated_interval(values):
    low, high = bootstrap_interval(values, 0.98)
    negated_low, negated_high = bootstrap_interval(-values, 0.98)
    assert (float(negated_low), float(negated_high)) == (-float(high), -float(low))


@given(rows)
def test_the_interval_holds_the_median_and_lies_within_the_values(values):
    low, high = (float(bound) for bound in bootstrap_interval(values, 0.98))
    assert values.min() <= low <= float(medians(values)) <= high <= values.max()


@given(rows, st.integers(-3, 3))
def test_moved_values_move_the_interval(values, by):
    # Sixteenths add without rounding.
    values = np.round(values * 16) / 16
    low, high = bootstrap_interval(values, 0.98)
    assert [float(b) for b in bootstrap_interval(values + by, 0.98)] == [low + by, high + by]


@given(rows, st.randoms())
def test_order_does_not_matter(values, random):
    shuffled = values.tolist()
    random.shuffle(shuffled)
    assert bootstrap_interval(np.array(shuffled), 0.98) == bootstrap_interval(values, 0.98)


def test_all_equal_has_no_width():
    low, high = bootstrap_interval(np.full(14, math.log(1.1)), 0.98)
    assert float(low) == float(high) == math.log(1.1)
    assert float(spreads(np.full(14, 0.1))) == 0.0
