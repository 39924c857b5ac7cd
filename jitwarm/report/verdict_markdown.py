"""A verdict as Markdown, for the summary of a CI step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jitwarm.amounts import counted
from jitwarm.gate.verdict import Statement, Verdict
from jitwarm.report.printable import printable
from jitwarm.report.verdict import advices, shortened

# GitHub takes 1 MiB of all commands of a step and shows nothing of more.
MOST_BYTES = 500_000
SHOWN_ROWS = 100
SHOWN_DETAILS = 200
# Of one text: a hundred rows of such cells fit too. The error of a kernel may be pages long.
MOST_CHARACTERS = 1000
HEAD = ("result", "scenario", "case", "kernel", "what")
# What Markdown, GitHub's mathematics ($) and a table (|) would take for their own.
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$#@])")


def verdict_markdown(verdict: Verdict) -> str:
    """What broke and by how much in the first line, a row a statement, the details folded.

    What does not fit into `MOST_BYTES` is left out, and the last line says so.
    """
    said = [one for one in verdict.statements if one.kind != "SAME"]
    blocks = [f"**{escaped(_cut(verdict.headline))}**"]
    if said:
        blocks.append("\n".join(_table(said)))
    if verdict.replayed:
        blocks.append(escaped(_cut(verdict.replayed)))
    if todo := advices(verdict):
        lines = [_cut(line) for line in shortened(todo, SHOWN_ROWS)]
        blocks.append("\n".join(_fenced(lines, "text")))
    text = "\n\n".join(blocks) + "\n"
    size = len(text.encode())
    left_out = 0
    for one in said:
        folded = "\n" + "\n".join(_folded(one)) + "\n" if one.details else ""
        size += len(folded.encode())
        if size > MOST_BYTES:
            left_out += 1
        else:
            text += folded
    if left_out:
        text += (
            f"\nDetails of {counted(left_out, 'statement')} are left out here; --json has them.\n"
        )
    return text


def escaped(text: str) -> str:
    """`text` as Markdown that shows it as it is, in a table too."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def _table(said: Sequence[Statement]) -> Iterator[str]:
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{' --- |' * len(HEAD)}"
    for one in said[:SHOWN_ROWS]:
        result = one.kind if one.code else f"{one.kind} (no failure)"
        cells = (result, one.scenario, one.case, one.kernel, one.text)
        yield f"| {' | '.join(escaped(_cut(cell)) for cell in cells)} |"
    if len(said) > SHOWN_ROWS:
        yield f"| | | | | and {len(said) - SHOWN_ROWS} more |"


def _folded(statement: Statement) -> Iterator[str]:
    yield f"<details><summary>{_html(_cut(statement.line))}</summary>"
    yield ""
    yield from _fenced(shortened(statement.details, SHOWN_DETAILS), "diff")
    yield ""
    yield "</details>"


def _fenced(lines: Sequence[str], language: str) -> Iterator[str]:
    """Lines as they are; in `diff` GitHub colours those that begin with + or -.

    A fence is longer than any run of its character inside.
    """
    body = [printable(line) for line in lines]
    runs = re.findall("`+", "\n".join(body))
    fence = "`" * max(3, *(len(run) + 1 for run in runs)) if runs else "```"
    yield f"{fence}{language}"
    yield from body
    yield fence


def _cut(text: str) -> str:
    more = len(text) - MOST_CHARACTERS
    return f"{text[:MOST_CHARACTERS]}... (and {more} more characters)" if more > 0 else text


def _html(text: str) -> str:
    shown = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Inside of a tag GitHub still looks for Markdown.
    return re.sub(r"([`*_\[\]~$@#\\|])", lambda found: f"&#{ord(found[0])};", shown)
