"""Text that any terminal, XML parser and JSON encoder takes: what a name holds must not act."""

from __future__ import annotations

import re

# C0 and C1 controls (newlines too: a statement is one line), halves of characters, the marks of
# direction that reorder a line, and what XML 1.0 calls no character.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    r"""`text` in one line, each unprintable character as Python writes it (`\x1b`, `\n`)."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def without_commands(text: str) -> str:
    """`text` for the log of a step of GitHub Actions: no line of it is a command, whatever a name
    in it holds.

    The runner looks behind the spaces of a line for `::`, and for `##[` anywhere.
    """
    return re.sub(r"(?m)^(\s*):(?=:)", r"\1\\:", text).replace("##[", "#\\#[")
