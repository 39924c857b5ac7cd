"""A verdict for people at a terminal: its headline, what speaks against a pass, the remarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jitwarm.gate.verdict import Statement, Verdict
from jitwarm.report.printable import printable

# A kernel may lose hundreds of keys; --json and --junit have them all.
SHOWN_DETAILS = 12


def verdict_text(verdict: Verdict) -> str:
    """The headline; a block a statement, those that fail first; how much was replayed; what to do,
    once.

    What is as expected has no line of its own: the headline counts it.
    """
    blocks = [printable(verdict.headline)]
    blocks += ["\n".join(_lines(one)) for one in verdict.statements if one.kind != "SAME"]
    blocks += [printable(verdict.replayed), "\n".join(map(printable, advices(verdict)))]
    return "\n\n".join(block for block in blocks if block)


def advices(verdict: Verdict) -> list[str]:
    """What to do, each advice once."""
    return list(dict.fromkeys(one.advice for one in verdict.statements if one.advice))


def shortened(lines: Sequence[str], most: int) -> list[str]:
    """At most `most` lines, the last of them says how many are left out."""
    if len(lines) <= most:
        return list(lines)
    return [*lines[: most - 1], f"and {len(lines) - most + 1} more"]


def _lines(statement: Statement) -> Iterable[str]:
    remark = "" if statement.code else " (no failure)"
    yield f"{statement.kind}{remark} {printable(statement.line)}"
    for line in shortened(statement.details, SHOWN_DETAILS):
        yield f"    {printable(line)}"
