"""A series: one number, measured at one commit after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["measured", "failed", "skipped"]
LOWER, HIGHER, NEITHER = -1, 1, 0


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement: at which commit, and when.

    `at` orders runs (seconds since 1970: of the commit, else of the start). `environment` is what
    may move a number although the code stayed: device, driver and versions. `question` is what was
    asked, as text; two runs of which it differs do not measure the same.
    """

    commit: str
    at: float
    started: float
    dirty: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    question: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """The commit as people write it; `+` where files differed from it."""
        return (self.commit[:8] or "no commit") + ("+" if self.dirty else "")


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number means: `better` is `LOWER`, `HIGHER` or `NEITHER`, `exact` for counts."""

    name: str
    title: str
    unit: str
    exact: bool
    better: int = LOWER


@dataclass(frozen=True, slots=True)
class Point:
    """The number of one run, `run` its place among them; `low` and `high` are the smallest and the
    largest of its samples where there are several. `stretch` counts up where a number changes its
    meaning, so that points of two stretches are never compared.
    """

    run: int
    value: float | None
    state: State = "measured"
    low: float | None = None
    high: float | None = None
    stretch: int = 0


@dataclass(frozen=True, slots=True)
class Series:
    """A metric over the runs that measured it, oldest first."""

    metric: Metric
    points: tuple[Point, ...]

    @property
    def latest(self) -> Point:
        """The newest point."""
        return self.points[-1]

    @property
    def values(self) -> list[float]:
        """The numbers, without the runs that have none."""
        return [point.value for point in self.points if point.value is not None]
