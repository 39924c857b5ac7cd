"""A verdict as workflow commands of GitHub Actions: what it shows beside changed files."""

from __future__ import annotations

from jitwarm.gate.verdict import Statement, Verdict
from jitwarm.report.printable import printable

# GitHub shows ten of each kind for a step and drops the others without a word.
MOST = 10


def github_annotations(verdict: Verdict) -> list[str]:
    """At most ten lines, the worst first; remarks are notices. The last of more says how many."""
    said = [one for one in verdict.statements if one.kind != "SAME"]
    if not said and verdict.code:
        return [f"::error title=jitwarm {verdict.command}::{_data(printable(verdict.headline))}"]
    if len(said) <= MOST:
        return [_line(verdict, one) for one in said]
    shown, rest = said[: MOST - 1], said[MOST - 1 :]
    level = "error" if any(one.code for one in rest) else "notice"
    more = f"and {len(rest)} more: see the summary or the log of this step"
    return [
        *(_line(verdict, one) for one in shown),
        f"::{level} title=jitwarm {verdict.command}::{more}",
    ]


def _line(verdict: Verdict, statement: Statement) -> str:
    level = "error" if statement.code else "notice"
    title = f"jitwarm {verdict.command}: {statement.kind} {statement.subject}"
    where = f"file={_property(printable(statement.file))}," if statement.file else ""
    parts = [statement.line, *statement.details[:3], statement.advice]
    if len(statement.details) > 3:
        parts.insert(4, f"and {len(statement.details) - 3} more")
    message = "\n".join(printable(part) for part in parts if part)
    return f"::{level} {where}title={_property(printable(title))}::{_data(message)}"


def _data(text: str) -> str:
    """A message: only what would end the line, and what escapes, is escaped."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A value among others: what would end it is escaped, too."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
