"""The top of the page: what is wrong in a line, a row a case, and what happened when."""

from __future__ import annotations

from collections.abc import Sequence

from jitwarm.amounts import counted
from jitwarm.history.cases import CaseHistory
from jitwarm.history.marks import BAD, Judged
from jitwarm.history.points import Run
from jitwarm.history.records import FailedCase
from jitwarm.report.html import figures
from jitwarm.report.html.history_section import mark_badge, newest_run, not_newest
from jitwarm.report.html.judged import JudgedCase, JudgedTree, states
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

# Newest first: the first ones in sight, the others folded; more stand in the tables of their cases.
FIRST_MARKS, MOST_MARKS = 15, 300
CHANGES_HEAD = ("number", "what", "#before", "#after", "#newest", "commit", "with it")


def headline(cases: Sequence[JudgedCase], orphans: Sequence[FailedCase],
             trees: Sequence[JudgedTree]) -> str:  # fmt: skip
    """What anybody wants to know first."""
    missed = sum(bool(one.history.latest.result.missed) for one in cases)
    failed = len(orphans) + sum(one.history.failed_last is not None for one in cases)
    judged = [one for case in cases for one in case.judged]
    judged += [one for tree in trees for one in tree.judged]
    unexpected = sum(bool(one.expected and one.expected.differences) for one in cases)
    worse, suspect = sum(one.worse for one in judged), sum(one.suspect for one in judged)
    partial = sum(one.history.latest.result.is_partial for one in cases)
    fine = sum(one.is_fine for one in cases)
    behind = sum(bool(one.history.not_at) for one in cases)
    parts = []
    if missed:
        parts.append(badge("bad", f"{missed} of {counted(len(cases), 'case')} with missed keys"))
    elif fine:
        parts.append(badge("good", f"no key missed in {counted(fine, 'case')}"))
    if failed:
        parts.append(badge("bad", f"{counted(failed, 'case')} failed"))
    if partial:
        parts.append(badge("bad", f"{counted(partial, 'case')} measured in part"))
    if unexpected:
        parts.append(badge("bad", f"{counted(unexpected, 'case')} not as expected"))
    if worse:
        parts.append(badge("bad", f"{counted(worse, 'number')} worse than before"))
    if suspect:
        parts.append(badge("doubt", f"{counted(suspect, 'number')} off in the newest runs"))
    if behind:
        parts.append(badge("doubt", f"{counted(behind, 'case')} not measured at the newest commit"))
    if not worse and any(len(one.series.points) > 1 for one in judged):
        parts.append(badge("good", "no number worse than before"))
    return f'<p class="headline">{" ".join(parts)}</p>'


def overview(cases: Sequence[JudgedCase], orphans: Sequence[FailedCase]) -> str:
    """A row a case, with a link to its section."""
    if not cases and not orphans:
        return ""
    head = ("case", "state", "#ready s", "#binaries", "#missed", "#never used", "#cold ms",
            "#loaded ms", "#runs", "newest", "device")  # fmt: skip
    rows = [_case_row(place, one) for place, one in enumerate(cases, 1)]
    rows += [_failed_row(one) for one in orphans]
    note = "cold and loaded: the first prefill step (first decode where there is none), in ms"
    return (
        f'<section id="cases-overview"><h2>Cases</h2><p class="note">{text(note)}.</p>'
        f"{table('Cases, newest result of each', head, rows, 'overview')}</section>"
    )


def _case_row(place: int, case: JudgedCase) -> str:
    history, result = case.history, case.history.latest.result
    shown, bad = states(case), case.troubled
    loaded = result.arms.get("loaded")
    run = history.runs[history.measured.index(history.latest)]
    cells = [
        Cell(f'<a href="#case-{place}">{text(history.title)}</a>', history.title.lower()),
        Cell(" ".join(badge(*one) for one in shown), f"{int(not bad)} {shown[0][1]}"),
        measured(loaded.ready_s if loaded else None),
        count(result.funnel.backend_keys),
        count(result.missed, "bad" if result.missed else ""),
        count(result.coverage.unreached),
        measured(_first(history, "cold")),
        measured(_first(history, "loaded")),
        count(len(history.runs)),
        Cell(f"<code>{text(run.label)}</code>", run.at),
        words(result.device.name if result.device.kind != "stub" else "stub"),
    ]
    return row(cells, f'data-name="{text(history.title.lower())}" data-bad="{int(bad)}"')


def _first(history: CaseHistory, arm: str) -> float | None:
    record = history.latest.result.arms.get(arm)
    if record is None:
        return None
    return (
        record.first_prefill_ms if record.first_prefill_ms is not None else record.first_decode_ms
    )


def _failed_row(one: FailedCase) -> str:
    name = f"{one.scenario} {one.folder}"
    trace = one.record.trace
    told = text(one.record.error) + (fold("trace", f"<pre>{text(trace)}</pre>") if trace else "")
    cells = [
        Cell(f"{text(name)} <small>{text(one.path)}</small>", name.lower()),
        Cell(f"{badge('bad', 'failed')} {told}", "0 failed"),
        *[measured(None) for _ in range(6)],
        count(1),
        words(one.record.source.commit[:8] or "unknown"),
        words("unknown"),
    ]
    return row(cells, f'data-name="{text(name.lower())}" data-bad="1"')


def changes(cases: Sequence[JudgedCase], trees: Sequence[JudgedTree]) -> str:
    """Every mark of every history, the newest first."""
    found: list[tuple[float, str]] = []
    for place, case in enumerate(cases, 1):
        history = case.history
        link = f'<a href="#case-{place}">{text(history.title)}</a>'
        found += _marks(case.judged, history.runs, link, history.title)
        found += _failures(history, link)
    for tree in trees:
        name = f"asv {tree.history.machine}"
        found += _marks(tree.judged, tree.history.runs, text(name), name)
    if not found:
        return ""
    found.sort(key=lambda one: -one[0])
    rows = [html for _, html in found]
    parts = [table("What happened, newest first", CHANGES_HEAD, rows[:FIRST_MARKS])]
    if rows[FIRST_MARKS:]:
        older = table("What happened before", CHANGES_HEAD, rows[FIRST_MARKS:MOST_MARKS])
        parts.append(fold(f"{counted(len(rows) - FIRST_MARKS, 'older one')}", older))
    if rows[MOST_MARKS:]:
        left = counted(len(rows) - MOST_MARKS, "of them is", "of them are")
        parts.append(f'<p class="note">{left} left out here; their cases have them.</p>')
    return f'<section id="changes"><h2>What changed</h2>{"".join(parts)}</section>'


def _marks(
    judged: Sequence[Judged], runs: Sequence[Run], link: str, title: str
) -> list[tuple[float, str]]:
    names, newest_of_all = figures.labels(runs), newest_run(judged)
    found = []
    for one in judged:
        metric, newest = one.series.metric, one.series.latest.value
        show = number if metric.exact else figure
        for mark in one.marks:
            run = runs[mark.run]
            bad = mark.kind in BAD and mark.stands
            back = "" if mark.stands else " <small>back since</small>"
            what = (
                f"{text(metric.title)} <small>{text(metric.unit)}</small><br><small>{link}</small>"
            )
            cells = [
                Cell(what, metric.title.lower()),
                Cell(mark_badge(mark) + back, f"{int(not bad)} {mark.kind}"),
                Cell(text(show(mark.before)), mark.before, "n"),
                Cell(text(show(mark.after)), mark.after, "n"),
                Cell(text(show(newest)) + not_newest(one, runs, newest_of_all), newest, "n"),
                _when(run, names[mark.run]),
                words(mark.note, "wide" if mark.note else ""),
            ]
            attributes = f'data-name="{text(title.lower())}" data-bad="{int(bad)}"'
            found.append((run.at, row(cells, attributes)))
    return found


def _failures(history: CaseHistory, link: str) -> list[tuple[float, str]]:
    """A row a run that failed."""
    names = figures.labels(history.runs)
    found = []
    for place, one in enumerate(history.measured):
        if isinstance(one, FailedCase):
            run, last = history.runs[place], one is history.measured[-1]
            cells = [
                Cell(f"the run itself<br><small>{link}</small>", "the run itself"),
                Cell(badge("bad" if last else "plain", "failed"), f"{int(not last)} failed"),
                *[Cell("-", None, "n") for _ in range(3)],
                _when(run, names[place]),
                words(one.record.error, "wide"),
            ]
            attributes = f'data-name="{text(history.title.lower())}" data-bad="{int(last)}"'
            found.append((run.at, row(cells, attributes)))
    return found


def _when(run: Run, label: str) -> Cell:
    return Cell(f"<code>{text(label)}</code> <small>{figures.day(run.at)}</small>", run.at)


def page_doubts(problems: Sequence[str], copies: int) -> str:
    """What the page itself leaves out."""
    items = [f"{badge('bad', 'unreadable')} {text(problem)}" for problem in problems]
    if copies:
        items.append(f"{badge('plain', 'copies')} {counted(copies, 'file')} of the same content "
                     "as another, each shown once")  # fmt: skip
    return f'<section id="left-out"><h2>Left out</h2>{listed(items)}</section>' if items else ""
