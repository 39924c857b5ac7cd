"""Pieces of HTML. Every text from a file goes through `text`; what is returned is safe to join."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jitwarm.report.printable import printable


def text(value: object) -> str:
    """Any text as HTML: escaped, and control characters made visible, but for line ends."""
    return html.escape("\n".join(map(printable, str(value).split("\n"))), quote=True)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: safe HTML, its classes, and what it is sorted by: None is its text."""

    html: str
    sort: float | str | None = None
    classes: str = ""


def words(value: object, classes: str = "") -> Cell:
    """A cell of plain text."""
    return Cell(text(value), None, classes)


def count(value: float | None, classes: str = "") -> Cell:
    """A cell of a whole number, or of a ratio."""
    return _numeric(value, number(value), classes)


def measured(value: float | None, classes: str = "") -> Cell:
    """A cell of a time or a size."""
    return _numeric(value, figure(value), classes)


def _numeric(value: float | None, shown: str, classes: str) -> Cell:
    known = -math.inf if value is None else value
    # A page has ten thousand of these: most need no second spelling to be sorted by.
    plain = shown.isascii() and shown.isdigit() and int(shown) == value
    return Cell(text(shown), None if plain else known, f"n {classes}".strip())


def number(value: float | None) -> str:
    """A count as people write it: `1,234`; ratios with what follows the point."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


def figure(value: float | None) -> str:
    """A measured number with three digits that mean something."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}" if value else "0"


def badge(kind: str, shown: str) -> str:
    """A word in a frame; `kind` is `bad`, `good`, `doubt` or `plain`."""
    return f'<span class="badge {kind}">{text(shown)}</span>'


def table(caption: str, head: Sequence[str], rows: Iterable[str], identity: str = "") -> str:
    """A sortable table that scrolls sideways where it is too wide. `rows` come from `row`; the
    names of columns of numbers begin with `#`.
    """
    columns = "".join(map(_column, head))
    own = f' id="{identity}"' if identity else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(caption)}">'
        f"<table{own}><caption>{text(caption)}</caption><thead><tr>{columns}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _column(name: str) -> str:
    kind = ' class="n"' if name.startswith("#") else ""
    shown = text(name.removeprefix("#"))
    return f'<th scope="col"{kind}><button type="button">{shown}</button></th>'


def row(cells: Sequence[Cell], attributes: str = "") -> str:
    """A row of a table; the first cell is its header. `attributes` are safe HTML."""
    parts = []
    for place, cell in enumerate(cells):
        kind = f" class={cell.classes}" if cell.classes.isalpha() else ""
        kind = f' class="{cell.classes}"' if cell.classes and not kind else kind
        sort = "" if cell.sort is None else f' data-s="{text(_sortable(cell.sort))}"'
        name, scope = ("td", "") if place else ("th", ' scope="row"')
        parts.append(f"<{name}{scope}{kind}{sort}>{cell.html}</{name}>")
    given = f" {attributes}" if attributes else ""
    return f"<tr{given}>{''.join(parts)}</tr>"


def _sortable(value: float | str) -> str:
    if isinstance(value, str):
        return value
    if math.isinf(value):
        return "1e999" if value > 0 else "-1e999"  # as a script reads infinity
    return f"{value:.10g}"


def fold(summary: str, inner: str, attributes: str = "") -> str:
    """What is shown on demand. Both parts are safe HTML."""
    given = f" {attributes}" if attributes else ""
    return f"<details{given}><summary>{summary}</summary>{inner}</details>"


def listed(items: Iterable[str], classes: str = "") -> str:
    """A list of safe HTML."""
    kind = f' class="{classes}"' if classes else ""
    return f"<ul{kind}>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
