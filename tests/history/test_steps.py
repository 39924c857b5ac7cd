"""Steps in noise: what is found, where, and how seldom something is found in noise alone."""

from __future__ import annotations

import random

import pytest

from jitwarm.history.steps import find_steps


def noisy(count, *, step=1.0, last=0, noise=0.03, seed=0):
    source = random.Random(seed)
    return [
        source.gauss(10, 10 * noise) * (step if place >= count - last else 1)
        for place in range(count)
    ]


def starts(values):
    return [level.start for level in find_steps(values).levels]


def test_nothing_and_one_value():
    assert find_steps([]).levels == ()
    assert starts([3.0]) == [0]


def test_a_step_begins_at_its_first_run_for_any_noise():
    places = [starts(noisy(16, step=1.4, last=7, seed=seed)) for seed in range(50)]
    assert places.count([0, 9]) == 50


def test_the_two_sides_of_a_step_are_medians():
    first, second = find_steps([1.0, 1.1, 0.9, 1.0, 1.0, 2.0, 2.0, 2.1, 1.9, 2.0]).levels
    assert (first.median, second.median) == (1.0, 2.0)


def test_up_and_down_again_are_two_steps():
    assert starts([5.0] * 8 + [7.0] * 6 + [5.0] * 8) == [0, 8, 14]


@pytest.mark.parametrize("level", [0.0, -4.0, 1e-9, 1e12])
def test_a_level_stays_one_whatever_its_size(level):
    assert starts([level] * 20) == [0]


def test_from_nothing_to_something():
    assert starts([0.0] * 6 + [4.0] * 6) == [0, 6]


def test_a_change_of_four_percent_is_no_step_and_of_six_is_one():
    assert starts([100.0] * 30 + [104.0] * 30) == [0]
    assert starts([100.0] * 30 + [106.0] * 30) == [0, 30]


def test_below_six_runs_nothing_is_judged():
    assert starts([1.0, 1.0, 9.0, 9.0, 9.0]) == [0]
    assert find_steps([1.0, 1.0, 1.0, 1.0, 9.0]).open == 0
    assert starts([1.0, 1.0, 1.0, 9.0, 9.0, 9.0]) == [0, 3]


@pytest.mark.parametrize("last", [1, 2])
def test_one_or_two_last_runs_are_open_and_no_step(last):
    found = find_steps(noisy(14, step=1.5, last=last))
    assert (len(found.levels), found.open) == (1, last)


def test_two_last_runs_on_different_sides_are_nothing_together():
    assert find_steps([10.0] * 10 + [20.0, 5.0]).open == 1


def test_one_stray_in_the_middle_is_nothing():
    assert starts([10.0] * 9 + [30.0] + [10.0] * 9) == [0]


def test_one_stray_beside_a_step_does_not_hide_it():
    assert starts([10.0] * 9 + [20.0, 20.0, 10.0] + [20.0] * 8) == [0, 9]


@pytest.mark.parametrize(
    ("draw", "most"),
    [
        (lambda source, noise: source.gauss(1, noise), 2),
        (lambda source, noise: source.lognormvariate(0, noise), 2),
        (lambda source, noise: source.uniform(1 - 1.7 * noise, 1 + 1.7 * noise), 4),
        (lambda source, noise: source.gauss(1, noise) * (1.8 if source.random() < 0.05 else 1), 4),
    ],
    ids=["normal", "lognormal", "uniform", "stalls"],
)
def test_noise_alone_is_seldom_a_step(draw, most):
    """docs/report.md has the figure: below 1 % of histories of noise alone."""
    found = 0
    for seed in range(100):
        source = random.Random(seed)
        for count, noise in ((6, 0.05), (12, 0.02), (12, 0.2), (30, 0.1)):
            values = [draw(source, noise) for _ in range(count)]
            found += len(find_steps(values).levels) > 1
    assert found <= most  # of 400


def test_of_steps_of_twenty_percent_in_three_percent_of_noise_most_are_found():
    found = sum(len(starts(noisy(30, step=1.2, last=5, seed=seed))) == 2 for seed in range(100))
    assert found >= 95
