"""The tracked numbers: what each is, and how it is read from the result of a case.

asv knows no direction, smaller is better for every type, so each number here falls when the
project gets better. What should be known and is not raises. What a machine cannot measure at all
has its reason in place of a number, and asv shows "n/a".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from jitwarm.record import Result

ClassT = TypeVar("ClassT", bound=type)
# What `setup_cache` hands to the tracks: a number, or why this machine has none, by track.
Cache = dict[str, float | str]

# A stub device loads no modules, so that arm would be `loaded` under another name.
NO_COMPILED_ARM = "arm compiled differs from loaded on a GPU only"


class BrokenMeasurementError(Exception):
    """The run did not measure what the tracks show; asv reports them as failed."""


@dataclass(frozen=True, slots=True)
class Track:
    """One number of a case: the benchmark is `track_<name>`.

    `version` goes up by hand when the number changes its meaning, and asv starts a new history.
    `exact` numbers are counts, or ratios of counts, and the same in every run. `arm` is the arm
    that the number is read from, where that is not `loaded`. In a title `{first}` stands for "first
    token" or "first step".
    """

    name: str
    title: str
    unit: str
    exact: bool
    read: Callable[[Result], float]
    version: str = "1"
    arm: str = "loaded"


def _excess(result: Result, arm: str) -> float:
    """Seconds; never negative, because asv compares ratios."""
    excess = result.arms[arm].excess_ms
    if excess is None:
        raise BrokenMeasurementError(f"arm {arm} has no excess: no prefill step is repeated")
    return max(0.0, excess / 1e3)


def _later(result: Result) -> float:
    later = result.arms["loaded"].later_ms
    if later is None:
        raise BrokenMeasurementError("arm loaded has no later step: no prefill step is repeated")
    return _positive("later_step", later / 1e3)


def _positive(name: str, value: float) -> float:
    """What takes time or memory takes more than none: 0 is a measure that was lost."""
    if value <= 0:
        raise BrokenMeasurementError(f"{name} is {value}")
    return value


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise BrokenMeasurementError(f"{name} is {value}")
    return value


def _start_up(name: str, title: str, arm: str) -> Track:
    return Track(name, title, "seconds", False, lambda r: r.arms[arm].ready_s, arm=arm)


def _excess_of(arm: str, title: str) -> Track:
    name, title = f"first_step_excess_{arm}", f"{{first}} minus later ones, {title}"
    # Version 1 was in milliseconds; asv scales seconds, and nothing else, to what people read.
    return Track(name, title, "seconds", False, lambda r: _excess(r, arm), version="2", arm=arm)


TRACKS = (
    _start_up("start_up", "start-up", "loaded"),
    _start_up("second_start_up", "start-up with full caches", "disk"),
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
        "redundant_compiles",
        "compiled more than once",
        "compiles",
        True,
        lambda r: r.warm.redundant_compiles,
    ),
    _excess_of("cold", "not warmed"),
    _excess_of("compiled", "compiled and not loaded"),
    _excess_of("loaded", "warmed"),
    _excess_of("disk", "warmed from full caches"),
    Track("later_step", "later prefill step", "seconds", False, _later),
    Track(
        "launch_overhead",
        "time of a step for each launch",
        "seconds",
        False,
        lambda r: _positive("launch_overhead", r.launch_overhead_us / 1e6),
    ),
    Track(
        "key_enumeration",
        "listing the keys",
        "seconds",
        False,
        lambda r: _positive("key_enumeration", r.enumeration_s),
    ),
    Track(
        "worker_import",
        "imports of a measured process",
        "seconds",
        False,
        lambda r: _positive("worker_import", r.import_s),
    ),
    Track(
        "peak_memory",
        "peak host memory",
        "bytes",
        False,
        lambda r: _positive("peak_memory", r.peak_rss_bytes),
    ),
)


def numbers(result: Result, failures: Sequence[str] = (), *, tokens: bool = False) -> Cache:
    """Every track's number by its name; arm `compiled` has none on a stub device, and says so.

    `failures` are the arms that died. Raises `BrokenMeasurementError` for those, for an arm without
    a sample, for keys that could not be warmed, and where nothing was registered, planned or
    launched: all numbers would be small then, and small looks good. `tokens` says that the case is
    about the first token, and one without is no measurement of it.
    """
    stub = result.device.kind == "stub"
    measured = [track for track in TRACKS if not (stub and track.arm == "compiled")]
    problems = list(failures)
    problems += [
        f"arm {arm} has no sample"
        for arm in dict.fromkeys(track.arm for track in measured)
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
    problems += [f"no launches at rank {c.rank}" for c in result.rank_coverage if not c.launches]
    if tokens and not result.arms["loaded"].is_first_token:
        problems.append("the model emitted no token, so its first step is no first token")
    if problems:
        raise BrokenMeasurementError(f"{result.scenario}: {'; '.join(problems)}")
    found: Cache = {track.name: NO_COMPILED_ARM for track in TRACKS}
    return found | {track.name: _finite(track.name, track.read(result)) for track in measured}


def unmeasured(reason: str) -> Cache:
    """The cache of a case that this machine cannot run at all."""
    return dict.fromkeys((track.name for track in TRACKS), reason)


def tracked(
    case: str, *, first: str = "first step", version: int = 1
) -> Callable[[ClassT], ClassT]:
    """Give a class, whose `setup_cache` returns `numbers` or `unmeasured`, one `track_*` for each
    track.

    `case` heads their names on the published pages; `first` is "first token" where the model emits
    one. `version` goes up by hand when the case becomes another one: other limits, other traffic.
    """

    def decorate(cls: ClassT) -> ClassT:
        for track in TRACKS:
            setattr(cls, f"track_{track.name}", _benchmark(track, case, first, version))
        return cls

    return decorate


def _benchmark(
    track: Track, case: str, first: str, version: int
) -> Callable[[object, Cache], float]:
    def benchmark(_self: object, cache: Cache) -> float:
        value = cache[track.name]
        if isinstance(value, str):  # `setup` has skipped it; a number must not be made of it here
            raise BrokenMeasurementError(f"{track.name}: {value}")
        return _finite(track.name, value)

    def setup(cache: Cache) -> None:
        """Only here, in a setup, is this error "not applicable" for asv, and no failure."""
        reason = cache[track.name]
        if isinstance(reason, str):
            raise NotImplementedError(reason)

    benchmark.__name__ = f"track_{track.name}"
    # asv reads these from the function.
    benchmark.__dict__.update(
        version=track.version if version == 1 else f"{track.version}.{version}",
        unit=track.unit,
        pretty_name=f"{case}: {track.title.format(first=first)}",
        timeout=60,  # it reads one number; the run itself has the timeout of setup_cache
        setup=setup,
    )
    return benchmark
