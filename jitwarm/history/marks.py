"""What happened to a series: every change of a count, every step of a time, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from jitwarm.amounts import counted
from jitwarm.history.points import NEITHER, Point, Run, Series
from jitwarm.history.steps import FEW, Steps, find_steps

Kind = Literal[
    "worse",  # a count went the wrong way, or a time stepped up
    "better",
    "changed",  # of a number that is neither good nor bad
    "open-worse",  # the last one or two runs lie off, too few to call it a step
    "open-better",
    "differs",  # a count is not the same twice at one commit
    "failed",  # nothing was measured any more
    "skipped",  # "not applicable" where there was a number
    "mended",  # a number again
    "anew",  # what is measured, or asked, is another thing from here on
]
BAD = frozenset(("worse", "differs", "failed", "skipped"))


@dataclass(frozen=True, slots=True)
class Mark:
    """One event in a series, at the run `run`; `before` and `after` are values, or medians of
    levels.

    `stands` tells whether the newest point still is on that side of `before`. `note` says what else
    changed at that run, or why nothing can be compared.
    """

    run: int
    kind: Kind
    before: float | None = None
    after: float | None = None
    stands: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """The marks of a series, oldest first; for a time also the levels of each of its stretches."""

    series: Series
    marks: tuple[Mark, ...]
    steps: tuple[Steps, ...] = ()

    @property
    def lacking(self) -> int:
        """How many runs more a time needs before its last stretch is judged; 0 for a count."""
        if not self.steps:
            return 0
        return max(0, FEW - sum(level.end - level.start for level in self.steps[-1].levels))

    @property
    def worse(self) -> bool:
        """Whether something went the wrong way and has not come back."""
        return any(mark.kind in BAD and mark.stands for mark in self.marks)

    @property
    def suspect(self) -> bool:
        """Whether the newest runs lie off to the wrong side, too few to call it a step."""
        return any(mark.kind == "open-worse" for mark in self.marks)


def judge(series: Series, runs: Sequence[Run], *, absences: bool = True) -> Judged:
    """The marks of a series. `absences=False` leaves failed runs to whoever counts them."""
    marks: list[Mark] = []
    steps: list[Steps] = []
    stretches = _stretches(series)
    for number, points in enumerate(stretches):
        if number:
            marks.append(Mark(points[0].run, "anew", note=_why_anew(stretches, number, runs)))
        measured = [point for point in points if point.value is not None]
        if series.metric.exact:
            marks += _changes(series, measured, runs)
        else:
            steps.append(find_steps([_value(point) for point in measured]))
            marks += _steps(series, measured, steps[-1], runs)
    if absences:
        marks += _absences(series)
    marks.sort(key=lambda mark: mark.run)
    return Judged(series, tuple(marks), tuple(steps))


def differences(before: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]]) -> str:
    """What differs between two environments or questions: `triton 3.8.0 -> 3.9.0`."""
    old, new = dict(before), dict(after)
    return ", ".join(
        f"{name} {old.get(name, 'none')} -> {new.get(name, 'none')}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    )


def _stretches(series: Series) -> list[list[Point]]:
    """The points of each stretch, in order."""
    found: dict[int, list[Point]] = {}
    for point in series.points:
        found.setdefault(point.stretch, []).append(point)
    return list(found.values())


def _why_anew(stretches: list[list[Point]], number: int, runs: Sequence[Run]) -> str:
    before, after = runs[stretches[number - 1][-1].run], runs[stretches[number][0].run]
    asked = differences(before.question, after.question)
    return f"asked otherwise: {asked}" if asked else "another version of the benchmark"


def _changes(series: Series, points: list[Point], runs: Sequence[Run]) -> Iterator[Mark]:
    for old, new in pairwise(points):
        before, after = _value(old), _value(new)
        if before == after:
            continue
        first, second = runs[old.run], runs[new.run]
        same = bool(first.commit) and first.commit == second.commit
        kind = _direction(series, after - before)
        if same and not first.dirty and not second.dirty and not _moved(first, second):
            kind = "differs"
        note = _moved(first, second)
        yield Mark(new.run, kind, before, after, _stands(points, before, after), note)


def _steps(
    series: Series, points: list[Point], steps: Steps, runs: Sequence[Run]
) -> Iterator[Mark]:
    levels = steps.levels
    for old, new in pairwise(levels):
        run, previous = points[new.start].run, points[new.start - 1].run
        kind = _direction(series, new.median - old.median)
        stands = (levels[-1].median - old.median) * (new.median - old.median) > 0
        yield Mark(run, kind, old.median, new.median, stands, _moved(runs[previous], runs[run]))
    if steps.open:
        start = len(points) - steps.open
        run, previous = points[start].run, points[start - 1].run
        after = _value(points[-1])
        worse = _direction(series, after - levels[-1].median) == "worse"
        note = f"{counted(steps.open, 'run')}: too few to call it a step"
        moved = _moved(runs[previous], runs[run])
        yield Mark(
            run,
            "open-worse" if worse else "open-better",
            levels[-1].median,
            after,
            note=f"{note}; {moved}" if moved else note,
        )


def _absences(series: Series) -> Iterator[Mark]:
    last = series.points[-1]
    previous: Point | None = None
    before: float | None = None  # the last number, however long ago
    for point in series.points:
        missing = point.value is None
        if missing and (previous is None or previous.state != point.state):
            kind: Kind = "failed" if point.state == "failed" else "skipped"
            # Skipped from the start is a choice; skipped where there was a number may hide a loss.
            if kind == "failed" or before is not None:
                yield Mark(point.run, kind, before, None, last.state == point.state)
        elif not missing and previous is not None and previous.value is None:
            yield Mark(point.run, "mended", None, point.value)
        previous, before = point, before if missing else point.value


def _moved(before: Run, after: Run) -> str:
    return differences(before.environment, after.environment)


def _direction(series: Series, change: float) -> Kind:
    if series.metric.better == NEITHER:
        return "changed"
    return "better" if change * series.metric.better > 0 else "worse"


def _stands(points: list[Point], before: float, after: float) -> bool:
    return (_value(points[-1]) - before) * (after - before) > 0


def _value(point: Point) -> float:
    assert point.value is not None  # only measured points come here
    return point.value
