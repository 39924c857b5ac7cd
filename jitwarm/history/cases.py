"""Results of one case, one after the other: its runs in order of commits, and its series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jitwarm.history.metrics import readings
from jitwarm.history.points import Metric, Point, Run, Series
from jitwarm.history.records import FailedCase, Records, Stored, moment
from jitwarm.record import DeviceRecord, Result

# More would neither be read on a page nor judged in a reasonable time.
MOST_RUNS = 200
# Parts of a case that name it, or are told apart otherwise.
_NAMES = ("schema", "name", "axes", "arch")


@dataclass(frozen=True, slots=True)
class CaseHistory:
    """One case on one device: `measured` are its runs, oldest first, each a result or a failure.

    `series` are the numbers over these runs; `older` counts runs that were left out. `not_at` is
    the newest commit at which any case of the device was run, where this one was not.
    """

    scenario: str
    label: str
    device: DeviceRecord
    runs: tuple[Run, ...]
    measured: tuple[Stored | FailedCase, ...]
    series: tuple[Series, ...]
    older: int = 0
    not_at: str = ""

    @property
    def latest(self) -> Stored:
        """The newest result."""
        return next(one for one in reversed(self.measured) if isinstance(one, Stored))

    @property
    def failed_last(self) -> FailedCase | None:
        """The newest run, if it failed."""
        last = self.measured[-1]
        return last if isinstance(last, FailedCase) else None

    @property
    def title(self) -> str:
        """Scenario and matrix values."""
        return f"{self.scenario} {self.label}".strip()


def case_histories(records: Records) -> tuple[list[CaseHistory], list[FailedCase]]:
    """The histories of all cases by name, and the failed cases of which there is no result.

    A failure belongs to the results of its scenario whose folder has the same name.
    """
    groups: dict[tuple[str, str, str, str, str], list[Stored]] = {}
    for one in records.results:
        device = one.result.device
        key = (one.result.scenario, label_of(one.result), device.kind, device.name, device.arch)
        groups.setdefault(key, []).append(one)
    failures: dict[tuple[str, str], list[FailedCase]] = {}
    for failed in records.failed:
        failures.setdefault((failed.scenario, failed.folder), []).append(failed)
    histories, known = [], set[tuple[str, str]]()
    for key in sorted(groups):
        names = {(key[0], one.folder) for one in groups[key]}
        known |= names
        own = [failed for name in sorted(names) for failed in failures.get(name, ())]
        histories.append(_history(key[0], key[1], [*groups[key], *own]))
    orphans = [f for f in records.failed if (f.scenario, f.folder) not in known]
    return _held_to_the_newest(histories), orphans


def _held_to_the_newest(histories: Sequence[CaseHistory]) -> list[CaseHistory]:
    """The histories, each with the newest commit of its device if it has no run of that.

    Architectures of a stub device are one device here. Runs of no known commit cannot be told.
    """
    newest: dict[tuple[str, str], Run] = {}
    for one in histories:
        device, run = (one.device.kind, one.device.name), one.runs[-1]
        known = newest.get(device)
        if run.commit and (known is None or _age(run) > _age(known)):
            newest[device] = run
    found = []
    for one in histories:
        own = one.runs[-1].commit
        if own and own != (last := newest[one.device.kind, one.device.name].commit):
            found.append(replace(one, not_at=last))
        else:
            found.append(one)
    return found


def _age(run: Run) -> tuple[float, float]:
    return run.at, run.started


def label_of(result: Result) -> str:
    """The matrix values as in `dcp=8 arch=sm90`, the architecture always among them."""
    axes = axes_of(result)
    named = axes if "arch" in axes else axes | {"arch": result.device.arch}
    return " ".join(f"{name}={value}" for name, value in named.items())


def axes_of(result: Result) -> dict[str, object]:
    """The matrix values of a case."""
    own = result.case.get("axes")
    return dict(own) if isinstance(own, dict) else {}


def environment_of(result: Result) -> tuple[tuple[str, str], ...]:
    """Device, driver and versions, as pairs in a fixed order."""
    device = result.device
    parts = {"device": device.name, "driver": device.driver, **result.versions}
    return tuple(parts.items())


def _history(scenario: str, label: str, measured: Sequence[Stored | FailedCase]) -> CaseHistory:
    ordered = sorted(measured, key=_order)
    older = max(0, len(ordered) - MOST_RUNS)
    newest = next(one for one in reversed(ordered) if isinstance(one, Stored))
    ordered = ordered[older:]
    if newest not in ordered:  # nothing but failures since
        ordered[0] = newest
    runs = tuple(_run(one) for one in ordered)
    series = tuple(_series(ordered, runs))
    return CaseHistory(scenario, label, newest.result.device, runs, tuple(ordered), series, older)


def _order(one: Stored | FailedCase) -> tuple[float, float, str]:
    return *_age(_run(one)), str(one.path)


def _run(one: Stored | FailedCase) -> Run:
    record = one.result if isinstance(one, Stored) else one.record
    source, started = record.source, _seconds(record.started_at)
    at = _seconds(source.date) if source.date else started
    if isinstance(one, FailedCase):
        return Run(source.commit, at, started, source.dirty)
    result = one.result
    asked = tuple(_flat({k: v for k, v in result.case.items() if k not in _NAMES}))
    return Run(source.commit, at, started, source.dirty, environment_of(result), asked)


def _seconds(text: str) -> float:
    """Seconds since 1970; a failure of which no time is known is the state of now."""
    return moment(text).timestamp() if text else float("inf")


def _flat(value: Any, path: str = "") -> Iterable[tuple[str, str]]:
    """The fields of a case as pairs of path and text."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, str(value)


def _series(measured: Sequence[Stored | FailedCase], runs: Sequence[Run]) -> Iterable[Series]:
    metrics: dict[str, Metric] = {}
    points: dict[str, list[Point]] = {}
    stretch, question = 0, None
    for run, one in enumerate(measured):
        if isinstance(one, FailedCase):
            continue
        stretch += question is not None and question != runs[run].question
        question = runs[run].question
        for reading in readings(one.result):
            name = reading.metric.name
            metrics[name] = reading.metric  # the newest title
            point = Point(run, reading.value, "measured", reading.low, reading.high, stretch)
            own = points.setdefault(name, [])
            if own and own[-1].run == run:
                continue  # two kernels of one name
            own.append(point)
    for name, metric in metrics.items():
        yield Series(metric, tuple(points[name]))
