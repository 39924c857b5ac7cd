"""The history of a case or of an asv tree: a table of its numbers, and a chart of what moved."""

from __future__ import annotations

from collections.abc import Sequence

from jitwarm.amounts import counted
from jitwarm.history.cases import CaseHistory
from jitwarm.history.marks import BAD, Judged, Mark
from jitwarm.history.points import HIGHER, NEITHER, Run
from jitwarm.report.html import figures
from jitwarm.report.html.markup import (
    Cell,
    badge,
    figure,
    fold,
    number,
    row,
    table,
    text,
)
from jitwarm.report.html.payload import Payload

HEAD = ("number", "#first", "#newest", "#change", "#runs", "what happened")
# Times of a case that are drawn even if nothing happened: what people look for.
ALWAYS = ("ready_s@loaded", "first_prefill_ms@loaded", "first_decode_ms@loaded")


def history_section(history: CaseHistory, judged: list[Judged], payload: Payload) -> str:
    """The numbers of a case over its runs."""
    if len(history.runs) < 2:
        return '<h4>History</h4><p class="note">One run: there is no history yet.</p>'
    shown = [
        one
        for one in judged
        if ":" not in one.series.metric.name or one.marks  # of a kernel only what moved
    ]
    drawn = [one for one in shown if one.marks or one.series.metric.name in ALWAYS]
    grid = charts(drawn, history.runs, payload)
    listing = numbers_table(f"Numbers of {history.title} over commits", shown, history.runs)
    return f"<h4>History</h4>{grid}{fold('all numbers, and what happened to each', listing)}"


def charts(judged: Sequence[Judged], runs: Sequence[Run], payload: Payload) -> str:
    """Small charts side by side."""
    found = []
    for one in judged:
        metric = one.series.metric
        caption = f"{metric.unit}; {verdict(one)}"
        kind = "counts" if metric.exact else "times"
        found.append(payload.figure(kind, metric.title, caption, figures.history_rows(one, runs)))
    return f'<div class="grid">{"".join(found)}</div>' if found else ""


def numbers_table(caption: str, judged: Sequence[Judged], runs: Sequence[Run]) -> str:
    """A row a number."""
    newest = newest_run(judged)
    return table(caption, HEAD, (_row(one, runs, newest) for one in judged))


def _row(one: Judged, runs: Sequence[Run], newest: int) -> str:
    series, metric = one.series, one.series.metric
    values = series.values
    first, last = (values[0], values[-1]) if values else (None, None)
    show = number if metric.exact else figure
    unit = {NEITHER: "", HIGHER: ", more is better"}.get(metric.better, "")
    return row(
        [
            Cell(f"{text(metric.title)} <small>{text(metric.unit + unit)}</small>", metric.title),
            Cell(text(show(first)), first, "n"),
            Cell(
                text("no number" if series.latest.value is None else show(last))
                + not_newest(one, runs, newest),
                last,
                "n",
            ),
            _change(first, last),
            Cell(str(len(series.points)), float(len(series.points)), "n"),
            Cell(_happened(one, runs), float(-len(one.marks)), "wide" if one.marks else ""),
        ]
    )


def newest_run(judged: Sequence[Judged]) -> int:
    """The newest run that has any number."""
    return max((one.series.latest.run for one in judged), default=0)


def not_newest(one: Judged, runs: Sequence[Run], newest: int) -> str:
    """Of which commit the last number is, if newer runs have none: it is not theirs."""
    run = one.series.latest.run
    return "" if run == newest else f" <small>at {text(figures.labels(runs)[run])}</small>"


def _change(first: float | None, last: float | None) -> Cell:
    if first is None or last is None:
        return Cell("-", 0.0, "n")
    if first == last:
        return Cell("same", 0.0, "n")
    if not first:
        return Cell("from 0", 1e9, "n")
    share = (last - first) / abs(first)
    return Cell(f"{share:+.1%}", share, "n")


def _happened(one: Judged, runs: Sequence[Run]) -> str:
    if not one.marks:
        return text(verdict(one))
    names = figures.labels(runs)
    exact = one.series.metric.exact
    return "<br>".join(mark_line(mark, names[mark.run], exact=exact) for mark in one.marks)


def mark_line(mark: Mark, label: str, *, exact: bool) -> str:
    """A mark in a line: badge, values, commit and note."""
    shown = number if exact else figure
    values = ""
    if mark.before is not None or mark.after is not None:
        values = f"{shown(mark.before)} &rarr; {shown(mark.after)} "
    note = f" <small>{text(mark.note)}</small>" if mark.note else ""
    gone = "" if mark.stands or mark.kind in ("anew", "mended") else " <small>(back since)</small>"
    return f"{mark_badge(mark)} {values}at <code>{text(label)}</code>{note}{gone}"


def mark_badge(mark: Mark) -> str:
    """The kind of a mark, coloured by whether it still is a problem."""
    if mark.kind in BAD:
        return badge("bad" if mark.stands else "plain", mark.kind)
    if mark.kind.startswith("open"):
        return badge("doubt", mark.kind.replace("-", ": "))
    return badge("good" if mark.kind == "better" else "plain", mark.kind)


def verdict(one: Judged) -> str:
    """What can be said about a series, in words."""
    if one.marks:
        kinds = [mark.kind.replace("-", ": ") for mark in one.marks]
        return ", ".join(
            f"{kinds.count(kind)} x {kind}" if kinds.count(kind) > 1 else kind
            for kind in dict.fromkeys(kinds)
        )
    if one.series.metric.exact:
        return f"the same in {counted(len(one.series.points), 'run')}"
    if one.lacking:
        return f"not judged: {counted(one.lacking, 'run')} more needed"
    (level,), noise = one.steps[-1].levels, one.steps[-1].noise
    return f"no step; noise {noise / abs(level.median) if level.median else 0:.0%}"
