"""The rows behind the charts of a case: plain data, one function a chart."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from jitwarm.history.cases import CaseHistory
from jitwarm.history.marks import Judged, Mark
from jitwarm.history.points import Point, Run
from jitwarm.history.records import Stored
from jitwarm.record import ArmRecord, Result
from jitwarm.report.html.charts import PHASES
from jitwarm.report.html.markup import figure, number
from jitwarm.report.html.payload import Row
from jitwarm.report.terminal import ORDER

# As many bars of earlier runs as can be read; the history has them all.
MOST_BARS = 15
# On a logarithmic scale nothing is at zero, and no step is this short.
SHORTEST_MS = 0.001


def arms_in_order(result: Result) -> list[tuple[str, ArmRecord]]:
    """The arms as the terminal has them; names of a later jitwarm behind."""
    known = [name for name in ORDER if name in result.arms]
    return [(name, result.arms[name]) for name in [*known, *sorted(set(result.arms) - set(known))]]


def labels(runs: Sequence[Run]) -> list[str]:
    """The commit of each run, numbered where one was measured several times."""
    seen: Counter[str] = Counter()
    found = []
    for run in runs:
        seen[run.label] += 1
        times = seen[run.label]
        found.append(run.label if times == 1 else f"{run.label} ({times})")
    return found


def day(seconds: float) -> str:
    """A date and time, UTC; `unknown` for none."""
    if seconds == float("inf"):
        return "unknown"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def events_words(arm: ArmRecord, *, loads: bool = True) -> str:
    """What was made while serving: `19 compiled, 2 from disk`."""
    parts = [
        f"{amount} {word}"
        for amount, word in (
            (arm.compiles, "compiled"),
            (arm.disk_hits, "from disk"),
            (arm.loads if loads else 0, "loaded"),
        )
        if amount
    ]
    return ", ".join(parts) or "nothing"


def arm_rows(result: Result) -> list[Row]:
    """First steps of each arm and the median of their repeats."""
    found = []
    for name, arm in arms_in_order(result):
        for step, first, later in (
            ("prefill", arm.first_prefill_ms, arm.later_ms),
            ("decode", arm.first_decode_ms, arm.later_decode_ms),
        ):
            if first is not None:
                found.append((name, arm, step, first, first if later is None else later))
    top = max((one[3] for one in found), default=1.0)
    bottom = min((min(one[3:]) for one in found), default=1.0)
    middle = (max(top, SHORTEST_MS) * max(bottom, SHORTEST_MS)) ** 0.5
    return [
        {
            "row": f"{name}, {step}",
            "step": step,
            "first": max(first, SHORTEST_MS),
            "later": max(later, SHORTEST_MS),
            "shown": f"{figure(first)} ms",
            "repeats": f"{figure(later)} ms",
            "events": _cause(result, arm, step),
            "label": f"{figure(first)} ms{_short_cause(result, arm, step)}",
            "side": "left" if first > middle else "right",
        }
        for name, arm, step, first, later in found
    ]


def _cause(result: Result, arm: ArmRecord, step: str) -> str:
    while_serving = f"{events_words(arm, loads=result.device.kind != 'stub')} while serving"
    if step == "prefill" and arm.first_step_event_ms:
        return f"{figure(arm.first_step_event_ms)} ms of it are events; {while_serving}"
    return while_serving


def _short_cause(result: Result, arm: ArmRecord, step: str) -> str:
    if step != "prefill" or not arm.first_step_event_ms or not arm.first_prefill_ms:
        return ""
    share = min(1.0, arm.first_step_event_ms / arm.first_prefill_ms)
    loads = result.device.kind != "stub"
    return f", {share:.0%} of it: {events_words(arm, loads=loads)}"


def phases_of(one: Stored) -> dict[str, float]:
    """Seconds of a start-up by phase, of the first process of arm `loaded`.

    The wall time of the warm-up is divided as the worker time of its events is.
    """
    result = one.result
    arm = result.arms.get("loaded")
    ready = (arm.raw.get("ready_s") or [arm.ready_s])[0] if arm else 0.0
    warm = result.warm.seconds
    parts = {
        "imports": result.import_s,
        "enumerate": result.enumeration_s,
        "rest of planning": max(0.0, ready - warm - result.enumeration_s),
    }
    spent = one.warm_ms or {}
    total = sum(spent.values())
    if not total:
        return parts | {"warm-up": warm}
    names = {"compile": "compile", "disk_hit": "from disk", "load": "load"}
    return parts | {names[kind]: warm * ms / total for kind, ms in spent.items() if ms}


def phase_rows(history: CaseHistory) -> list[Row]:
    """A stacked bar a run, the newest first."""
    names = labels(history.runs)
    rows: list[Row] = []
    newest = [
        (names[place], one) for place, one in enumerate(history.measured) if isinstance(one, Stored)
    ][-MOST_BARS:]
    for label, one in reversed(newest):
        for phase, seconds in phases_of(one).items():
            rows.append(
                {
                    "label": label,
                    "phase": phase,
                    "order": PHASES.index(phase),
                    "s": seconds,
                    "shown": f"{figure(seconds)} s",
                }
            )
    return rows


def kernel_rows(history: CaseHistory) -> list[Row]:
    """Worker seconds of each kernel, the slowest first, and the median of the runs before."""
    earlier: dict[str, list[float]] = {}
    for one in history.measured:
        if isinstance(one, Stored) and one is not history.latest:
            for kernel in one.result.kernels:
                earlier.setdefault(kernel.kernel, []).append(kernel.seconds)
    rows: list[Row] = []
    kernels = history.latest.result.kernels
    for kernel in sorted(kernels, key=lambda one: -one.seconds):
        before = earlier.get(kernel.kernel)
        median = statistics.median(before) if before else None
        was = "" if median is None else f", before {figure(median)} s"
        rows.append(
            {
                "kernel": kernel.kernel,
                "s": kernel.seconds,
                "before": median,
                "shown": f"{figure(kernel.seconds)} s{was}",
            }
        )
    return rows


def funnel_rows(result: Result) -> list[Row]:
    """Registrations of all layers down to binaries."""
    funnel = result.funnel
    stages = (
        ("registrations", funnel.registrations),
        ("distinct", funnel.distinct_registrations),
        ("points", funnel.points),
        ("keys", funnel.keys),
        ("binaries", funnel.backend_keys),
    )
    return [{"stage": stage, "n": n, "shown": number(n)} for stage, n in stages]


def coverage_rows(result: Result) -> list[Row]:
    """Backend keys of each kernel: used by traffic, missed, never used."""
    rows: list[Row] = []
    for kernel in result.kernels:
        used = max(0, kernel.needed - kernel.missed)
        parts = (("used", used), ("missed", kernel.missed), ("never used", kernel.unreached))
        for order, (state, n) in enumerate(parts):
            if n or not order:  # a kernel has its place even where it has no key
                rows.append({"kernel": kernel.kernel, "state": state, "n": n, "order": order})
    return rows


def history_rows(judged: Judged, runs: Sequence[Run]) -> list[Row]:
    """Points of a series with their marks; the levels of a time, and runs without a number."""
    series, names = judged.series, labels(runs)
    marks: dict[int, Mark] = {mark.run: mark for mark in judged.marks}
    levels = _levels(judged)
    floor = min(series.values, default=0.0)
    rows: list[Row] = []
    for place, point in enumerate(series.points):
        run, mark = runs[point.run], marks.get(point.run)
        shown = "no number" if point.value is None else figure(point.value)
        if series.metric.exact and point.value is not None:
            shown = number(point.value)
        level = levels.get(place)
        row = {
            "label": names[point.run],
            "commit": run.commit or "unknown",
            "date": day(run.at),
            "value": point.value,
            "low": point.low,
            "high": point.high,
            "level": level[1] if level else None,
            "segment": level[0] if level else None,
            "stretch": point.stretch,
            "shown": f"{shown} {series.metric.unit}{_between(point)}",
            "what": "" if mark is None else " ".join(filter(None, (mark.kind, mark.note))),
        }
        if point.value is None:
            row |= {"mark": "failed", "place": floor, "shown": point.state}
        elif mark is not None and mark.kind != "mended":
            row |= {"mark": _shape(mark.kind)}
            if mark.kind != "anew":  # a line across the chart: it has no place on it
                row |= {"place": point.value}
        rows.append({name: value for name, value in row.items() if value not in (None, "")})
    return rows


def _shape(kind: str) -> str:
    return "open" if kind.startswith("open") else kind


def _between(point: Point) -> str:
    if point.low is None or point.high is None:
        return ""
    return f" [{figure(point.low)}..{figure(point.high)}]"


def _levels(judged: Judged) -> dict[int, tuple[str, float]]:
    """Name and median of the level that each point of a time belongs to."""
    stretches: dict[int, list[int]] = {}
    for place, point in enumerate(judged.series.points):
        own = stretches.setdefault(point.stretch, [])
        if point.value is not None:
            own.append(place)
    return {
        places[index]: (f"{stretch}.{number}", level.median)
        for stretch, (places, steps) in enumerate(
            zip(stretches.values(), judged.steps, strict=False)
        )
        for number, level in enumerate(steps.levels)
        for index in range(level.start, level.end)
    }
