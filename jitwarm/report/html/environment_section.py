"""Where everything was measured: device, driver, versions, and in what the records differ."""

from __future__ import annotations

from collections.abc import Sequence

from jitwarm.amounts import counted
from jitwarm.history.cases import CaseHistory, environment_of
from jitwarm.history.records import Stored
from jitwarm.report.html.markup import row, table, text, words

# More columns cannot be read; the newest are shown.
MOST_COLUMNS = 12


def environment_section(histories: Sequence[CaseHistory]) -> str:
    """A column an environment, the newest first; what differs stands on top."""
    found: dict[tuple[tuple[str, str], ...], list[Stored]] = {}
    for history in histories:
        for one in history.measured:
            if isinstance(one, Stored):
                found.setdefault(environment_of(one.result), []).append(one)
    if not found:
        return ""
    newest = sorted(found, key=lambda one: max(s.result.started_at for s in found[one]))[::-1]
    shown = newest[:MOST_COLUMNS]
    names = dict.fromkeys(name for environment in shown for name, _ in environment)
    values = {name: [dict(one).get(name, "-") for one in shown] for name in names}
    differing = [name for name in values if len(set(values[name])) > 1]
    ordered = [*differing, *(name for name in values if name not in differing)]
    head = ["what", *(f"{counted(len(found[one]), 'record')}" for one in shown)]
    rows = [
        row(
            [words(name), *(words(value, _class(name, differing)) for value in values[name])],
        )
        for name in ordered
    ]
    if len(newest) == 1:
        line = "All records were measured with these."
    elif differing:
        line = f"{counted(len(newest), 'environment')}: they differ in {', '.join(differing)}."
    else:
        line = f"{len(newest)} environments."
    older = len(newest) - len(shown)
    if older:
        line += f" The {older} oldest are left out."
    return (
        f'<section id="environment"><h2>Environment</h2><p class="note">{text(line)}</p>'
        f"{table('Device, driver and versions', head, rows)}</section>"
    )


def _class(name: str, differing: Sequence[str]) -> str:
    return "differs" if name in differing else ""
