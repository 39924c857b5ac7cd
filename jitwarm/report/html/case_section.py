"""The section of one case: first steps, start-up, funnel, coverage, and its doubts."""

from __future__ import annotations

from jitwarm.amounts import counted
from jitwarm.history.cases import CaseHistory
from jitwarm.record import Result
from jitwarm.report.html import figures
from jitwarm.report.html.coverage_section import coverage_section
from jitwarm.report.html.history_section import history_section
from jitwarm.report.html.judged import JudgedCase, states
from jitwarm.report.html.markup import (
    Cell,
    badge,
    count,
    figure,
    fold,
    listed,
    measured,
    number,
    row,
    table,
    text,
    words,
)
from jitwarm.report.html.payload import Payload


def case_section(place: int, case: JudgedCase, payload: Payload, *, opened: bool) -> str:
    """Everything about a case, folded unless `opened`."""
    history, result = case.history, case.history.latest.result
    parts = [
        f'<p class="about">{about(history)}</p>',
        _doubts(history),
        _first_steps(history, payload),
        _start_up(history, payload),
        _funnel(result, payload),
        coverage_section(result, case.expected, payload),
        history_section(history, case.judged, payload),
    ]
    badges = " ".join(badge(*one) for one in states(case))
    summary = f"<h3>{text(history.title)}</h3> {badges}"
    attributes = (
        f'class="case" id="case-{place}" data-name="{text(history.title.lower())}" '
        f'data-bad="{int(case.troubled)}"{" open" if opened else ""}'
    )
    return fold(summary, "".join(parts), attributes)


def about(history: CaseHistory) -> str:
    """Device, commit and time of the newest result."""
    result, device = history.latest.result, history.device
    run = history.runs[history.measured.index(history.latest)]
    where = (
        "stub device: real keys and binaries, host times only"
        if device.kind == "stub"
        else f"{device.name}, driver {device.driver}"
    )
    older = f", {counted(history.older, 'older run')} left out" if history.older else ""
    return text(
        f"{where}. Newest result: {run.label} of {figures.day(run.at)} UTC, measured "
        f"{result.started_at}; {counted(len(history.runs), 'run')}{older}. {history.latest.path}"
    )


def _doubts(history: CaseHistory) -> str:
    result = history.latest.result
    parts: list[str] = []
    failed = history.failed_last
    if failed is not None:
        trace = fold("trace", f"<pre>{text(failed.record.trace)}</pre>")
        what = f"the newest run failed: {failed.record.error} ({failed.path})"
        parts.append(
            f"{badge('bad', 'failed')} {text(what)} {trace if failed.record.trace else ''}"
        )
    parts += [f"{badge('bad', 'failed')} {text(failure)}" for failure in result.failures]
    for one in result.warm.failed:
        what = f"{one.kernel}, rank {one.rank}: {one.error}"
        key = fold("key", f"<code>{text(one.key)}</code>") if one.key else ""
        parts.append(f"{badge('bad', 'not warmed')} {text(what)} {key}")
    parts += [
        f"{badge('bad', 'nothing launched')} rank {rank}: this run shows nothing about it"
        for rank in result.idle_ranks
    ]
    for finding in result.findings:
        advice = f" Do: {finding.advice}." if finding.advice else ""
        parts.append(f"{badge('doubt', finding.kind)} {text(finding.message + advice)}")
    parts += [f"{badge('doubt', 'doubt')} {text(check)}" for check in result.checks]
    if history.not_at:
        what = (
            f"not measured at {history.not_at[:8]}, the newest commit that was measured on this "
            f"device: the newest run is of {history.runs[-1].label}"
        )
        parts.append(f"{badge('doubt', 'doubt')} {text(what)}")
    if history.runs[-1].dirty:
        parts.append(f"{badge('doubt', 'doubt')} files differed from the commit (the sign +)")
    return f"<h4>Doubts and findings</h4>{listed(parts)}" if parts else ""


def _first_steps(history: CaseHistory, payload: Payload) -> str:
    result = history.latest.result
    token = any(arm.is_first_token for arm in result.arms.values())
    name = "First token" if token else "First step of the kernels"
    rows = figures.arm_rows(result)
    plot = payload.figure(
        "arms",
        f"{name} by arm",
        "the dot is the first step, the tick the median of its repeats; between them is the stall",
        rows,
    )
    stub = result.device.kind == "stub"
    head = ("arm", "#processes", "#ready s", "#prefill ms", "#of it events", "#of it loads",
            "#repeats", "#decode ms", "#repeats", "#spread", "#compiled", "#from disk",
            "#loaded")  # fmt: skip
    lines = []
    for arm, record in figures.arms_in_order(result):
        spread = record.spread
        lines.append(
            row(
                [
                    words(arm),
                    count(record.samples),
                    measured(record.ready_s),
                    measured(record.first_prefill_ms),
                    measured(record.first_step_event_ms),
                    measured(record.first_step_load_ms),
                    measured(record.later_ms),
                    measured(record.first_decode_ms),
                    measured(record.later_decode_ms),
                    Cell("-" if spread is None else f"{spread:.0%}", spread or 0.0, "n"),
                    count(record.compiles),
                    count(record.disk_hits),
                    Cell("-", 0.0, "n") if stub else count(record.loads),
                ]
            )
        )
    note = (
        "<p class=note>On a stub device nothing is loaded, so an arm <i>compiled</i> would equal "
        "<i>loaded</i>.</p>"
        if stub
        else ""
    )
    listing = table(f"{name}: arms of {history.title}", head, lines)
    return f"<h4>{text(name)}</h4>{plot if rows else ''}{listing}{note}"


def _start_up(history: CaseHistory, payload: Payload) -> str:
    result = history.latest.result
    phases = payload.figure(
        "phases",
        "Start-up by phase",
        "first process of arm loaded; newest run on top",
        figures.phase_rows(history),
    )
    kernels = payload.figure(
        "kernels",
        "Warm-up by kernel",
        "worker seconds; the tick is the median of the earlier runs",
        figures.kernel_rows(history),
    )
    warm = result.warm
    note = (
        f"{figure(warm.seconds)} s of warm-up with {counted(warm.jobs, 'job')}, "
        f"{figure(warm.cpu_seconds)} s of processor; depth {warm.depth}"
    )
    if history.latest.warm_ms is None:
        note += "; compiles and loads are not told apart: no events lie beside the result"
    return (
        f'<h4>Start-up</h4><p class="note">{text(note)}.</p>'
        f'<div class="pair">{phases}{kernels if result.kernels else ""}</div>'
    )


def _funnel(result: Result, payload: Payload) -> str:
    funnel = result.funnel
    line = (
        f"{counted(funnel.layers, 'layer')}: {number(funnel.registrations)} registrations, "
        f"{number(funnel.distinct_registrations)} distinct ({funnel.dedup_ratio:.1f}x), "
        f"{number(funnel.points)} points, {number(funnel.keys)} keys, "
        f"{number(funnel.backend_keys)} binaries: {number(funnel.compiled)} compiled, "
        f"{number(funnel.disk_hits)} from disk, {number(funnel.loaded)} loaded"
    )
    plot = payload.figure(
        "funnel", "Dedup funnel", "symmetric logarithm", figures.funnel_rows(result)
    )
    return f'<h4>Funnel</h4><p class="note">{text(line)}.</p>{plot}'
