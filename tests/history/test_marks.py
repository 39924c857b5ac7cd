"""Marks: every change of a count, every step of a time, and what is missing."""

from __future__ import annotations

import pytest

from jitwarm.history.marks import Mark, judge
from jitwarm.history.points import HIGHER, LOWER, NEITHER, Metric, Point, Run, Series


def runs(count, **changes):
    return [
        Run(
            changes.get("commits", {}).get(place, f"{place:040x}"),
            float(place),
            float(place),
            place in changes.get("dirty", ()),
            (("triton", "3.9" if place >= changes.get("triton", 99) else "3.8"),),
            (("steps", "100" if place >= changes.get("asked", 99) else "50"),),
        )
        for place in range(count)
    ]


def marks(values, *, exact=True, better=LOWER, absences=True, stretch=lambda _: 0, **changes):
    points = [
        Point(place, value, stretch=stretch(place))
        if not isinstance(value, str)
        else Point(place, None, value, stretch=stretch(place))
        for place, value in enumerate(values)
    ]
    series = Series(Metric("n", "n", "keys", exact, better), tuple(points))
    return judge(series, runs(len(values), **changes), absences=absences)


def test_every_change_of_a_count_is_a_mark():
    assert marks([1000, 1000, 1001, 999, 999]).marks == (
        Mark(2, "worse", 1000, 1001, stands=False),
        Mark(3, "better", 1001, 999),
    )


@pytest.mark.parametrize(
    ("better", "kind"), [(LOWER, "worse"), (HIGHER, "better"), (NEITHER, "changed")]
)
def test_the_direction_is_the_metrics(better, kind):
    assert [mark.kind for mark in marks([4, 5], better=better).marks] == [kind]


def test_worse_until_it_is_back():
    assert marks([0, 2, 2]).worse
    assert not marks([0, 2, 0]).worse
    assert not marks([2, 0]).worse


def test_a_count_that_differs_at_one_clean_commit_is_no_change():
    same = {0: "a" * 40, 1: "a" * 40}
    assert [m.kind for m in marks([1, 2], commits=same).marks] == ["differs"]
    assert [m.kind for m in marks([1, 2], commits=same, dirty=(1,)).marks] == ["worse"]
    assert [m.kind for m in marks([1, 2], commits=same, triton=1).marks] == ["worse"]
    assert [m.kind for m in marks([1, 2], commits={0: "", 1: ""}).marks] == ["worse"]


def test_what_else_changed_stands_beside_the_mark():
    assert [m.note for m in marks([1, 2, 3], triton=2).marks] == ["", "triton 3.8 -> 3.9"]


def test_a_step_of_a_time_is_a_mark_at_its_first_run():
    (mark,) = marks([2.0] * 6 + [3.0] * 6, exact=False, triton=6).marks
    assert mark == Mark(6, "worse", 2.0, 3.0, note="triton 3.8 -> 3.9")


def test_a_time_that_steps_back_stands_no_more():
    found = marks([2.0] * 6 + [3.0] * 6 + [2.0] * 6, exact=False)
    assert [(m.kind, m.stands) for m in found.marks] == [("worse", False), ("better", True)]
    assert not found.worse


def test_the_last_runs_of_a_time_are_open():
    found = marks([2.0] * 8 + [3.0], exact=False)
    assert [(m.run, m.kind, m.before, m.after) for m in found.marks] == [(8, "open-worse", 2, 3)]
    assert found.marks[0].note == "1 run: too few to call it a step"
    assert found.suspect and not found.worse
    assert marks([2.0] * 8 + [1.0], exact=False).marks[0].kind == "open-better"


def test_few_runs_of_a_time_are_not_judged():
    found = marks([2.0, 9.0], exact=False)
    assert (found.marks, found.lacking) == ((), 4)
    assert marks([1, 1]).lacking == 0


def test_another_stretch_is_compared_with_nothing_before():
    found = marks([1, 1, 5, 6], stretch=lambda place: int(place >= 2), asked=2)
    assert [(m.run, m.kind, m.note) for m in found.marks] == [
        (2, "anew", "asked otherwise: steps 50 -> 100"),
        (3, "worse", ""),
    ]
    found = marks([1, 5], stretch=lambda place: place)
    assert [m.note for m in found.marks] == ["another version of the benchmark"]


def test_failures_and_skips():
    found = marks([3, "failed", "failed", 3, "skipped"])
    assert [(m.run, m.kind, m.stands) for m in found.marks] == [
        (1, "failed", False),
        (3, "mended", True),
        (4, "skipped", True),
    ]
    assert found.worse
    assert marks([3, "failed"], absences=False).marks == ()


def test_skipped_from_the_start_is_a_choice_and_failed_is_not():
    assert marks(["skipped", "skipped"]).marks == ()
    assert [m.kind for m in marks(["failed", "failed"]).marks] == ["failed"]
    assert [m.kind for m in marks(["skipped", "failed"]).marks] == ["failed"]


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([5, "failed", "skipped"], [("failed", 5, False), ("skipped", 5, True)]),
        ([5, "skipped", "failed"], [("skipped", 5, False), ("failed", 5, True)]),
        (["failed", "skipped"], [("failed", None, False)]),
    ],
)
def test_a_number_that_failed_and_is_skipped_now_is_lost_all_the_same(values, kinds):
    found = marks(values)
    assert [(mark.kind, mark.before, mark.stands) for mark in found.marks] == kinds
    assert found.worse is (kinds[-1][2])


def test_a_series_without_any_number_has_levels_of_nothing():
    assert marks(["failed"], exact=False).steps[0].levels == ()
