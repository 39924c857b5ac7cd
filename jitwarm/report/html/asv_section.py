"""Histories from asv: a table and charts for each machine and environment."""

from __future__ import annotations

from collections.abc import Sequence

from jitwarm.amounts import counted
from jitwarm.report.html import figures
from jitwarm.report.html.history_section import charts, numbers_table
from jitwarm.report.html.judged import JudgedTree
from jitwarm.report.html.markup import badge, fold, text
from jitwarm.report.html.payload import Payload

# Of one machine; each is a chart of its own, and more of them are no overview.
MOST_CHARTS = 24


def asv_section(trees: Sequence[JudgedTree], payload: Payload) -> str:
    """All machines and environments."""
    if not trees:
        return ""
    parts = [_tree(one, payload, opened=len(trees) == 1) for one in trees]
    return (
        '<section id="asv"><h2>asv</h2><p class="note">asv takes less for better. Tracked numbers '
        "whose unit is no time and no size are held for exact.</p>"
        f"{''.join(parts)}</section>"
    )


def _tree(tree: JudgedTree, payload: Payload, *, opened: bool) -> str:
    history, judged = tree.history, tree.judged
    title = f"asv {history.machine} {history.environment}"
    worse = sum(one.worse for one in judged)
    state = badge("bad", f"{counted(worse, 'number')} worse") if worse else ""
    newest = history.runs[-1]
    about = (
        f"{counted(len(history.runs), 'commit')}, the newest {newest.label} of "
        f"{figures.day(newest.at)} UTC; "
        + ", ".join(f"{name} {value}" for name, value in newest.environment)
    )
    moved = [one for one in judged if one.marks]
    rest = [one for one in judged if not one.marks and len(one.series.points) > 1]
    drawn = [*moved, *rest][:MOST_CHARTS]
    left = len(moved) + len(rest) - len(drawn)
    note = (
        f'<p class="note">{counted(left, "chart")} left out; the table has all.</p>' if left else ""
    )
    grid = charts(drawn, history.runs, payload)
    listing = numbers_table(f"Numbers of {title}", judged, history.runs)
    inner = f'<p class="about">{text(about)}</p>{grid}{note}{listing}'
    attributes = (
        f'class="case" data-name="{text(title.lower())}" data-bad="{int(bool(worse))}"'
        f"{' open' if opened else ''}"
    )
    return fold(f"<h3>{text(title)}</h3> {state}", inner, attributes)
