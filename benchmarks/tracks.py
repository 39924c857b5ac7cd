"""The tracked numbers: what each is, and how it is read from the result of a case.

asv knows no direction, smaller is better for every type, so each number here falls when the
project gets better. None of them is ever a substitute for a number: what is not known raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from jitwarm.record import Result

ClassT = TypeVar("ClassT", bound=type)


class BrokenMeasurementError(Exception):
    """The run did not measure what the tracks show; asv reports them as failed."""


@dataclass(frozen=True, slots=True)
class Track:
    """One number of a case: the benchmark is `track_<name>`.

    `version` goes up by hand when the number changes its meaning, and asv starts a new history.
    `exact` numbers are counts, or ratios of counts, and the same in every run.
    """

    name: str
    title: str
    unit: str
    exact: bool
    read: Callable[[Result], float]
    version: str = "1"


TRACKS = (
    Track("start_up", "start-up", "seconds", False, lambda r: r.arms["loaded"].ready_s),
    Track("compile_keys", "compile keys", "keys", True, lambda r: r.funnel.backend_keys),
    Track(
        "unique_fraction",
        "distinct among all registrations",
        "fraction",
        True,
        lambda r: r.funnel.distinct_registrations / r.funnel.registrations,
    ),
    Track("runtime_misses", "runtime misses", "keys", True, lambda r: r.missed),
    Track("unreached_keys", "warmed and never used", "keys", True, lambda r: r.coverage.unreached),
    Track(
        "first_step_excess_cold",
        "first step minus later ones, not warmed",
        "ms",
        False,
        lambda r: _excess(r, "cold"),
    ),
    Track(
        "first_step_excess_loaded",
        "first step minus later ones, warmed",
        "ms",
        False,
        lambda r: _excess(r, "loaded"),
    ),
)


def numbers(result: Result, failures: Sequence[str] = ()) -> dict[str, float]:
    """Every track's number by its name.

    `failures` are the arms that died. Raises `BrokenMeasurementError` for those, for an arm without
    a sample, for keys that could not be warmed, and where nothing was registered, planned or
    launched: all numbers would be small then, and small looks good.
    """
    problems = list(failures)
    problems += [
        f"arm {arm} has no sample"
        for arm in ("cold", "loaded")
        if arm not in result.arms or not result.arms[arm].samples
    ]
    problems += [f"{failed.kernel} was not warmed: {failed.error}" for failed in result.warm.failed]
    problems += [
        f"no {what}"
        for what, count in (
            ("registrations", result.funnel.registrations),
            ("distinct registrations", result.funnel.distinct_registrations),
            ("compile keys", result.funnel.backend_keys),
            ("warmed keys", result.warm.warmed),
            ("launches", result.coverage.launches),
        )
        if not count
    ]
    if problems:
        raise BrokenMeasurementError(f"{result.scenario}: {'; '.join(problems)}")
    return {track.name: _finite(track.name, track.read(result)) for track in TRACKS}


def tracked(case: str) -> Callable[[ClassT], ClassT]:
    """Give a class, whose `setup_cache` returns `numbers`, one `track_*` for each track.

    `case` heads their names on the published pages.
    """

    def decorate(cls: ClassT) -> ClassT:
        for track in TRACKS:
            setattr(cls, f"track_{track.name}", _benchmark(track, case))
        return cls

    return decorate


def _benchmark(track: Track, case: str) -> Callable[[object, dict[str, float]], float]:
    def benchmark(_self: object, cache: dict[str, float]) -> float:
        return _finite(track.name, cache[track.name])

    benchmark.__name__ = f"track_{track.name}"
    # asv reads these from the function.
    benchmark.__dict__.update(
        version=track.version,
        unit=track.unit,
        pretty_name=f"{case}: {track.title}",
        timeout=60,  # it reads one number; the run itself has the timeout of setup_cache
    )
    return benchmark


def _excess(result: Result, arm: str) -> float:
    """Milliseconds; never negative, because asv compares ratios."""
    excess = result.arms[arm].excess_ms
    if excess is None:
        raise BrokenMeasurementError(f"arm {arm} has no excess: no prefill step is repeated")
    return max(0.0, excess)


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise BrokenMeasurementError(f"{name} is {value}")
    return value
