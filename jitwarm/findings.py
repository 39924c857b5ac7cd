"""Findings: what planning, replay and proof have to say, in one form."""

from __future__ import annotations

import msgspec

KINDS = (
    "MISS",
    "UNREACHED",
    "UNDECLARED",
    "WARM-CRASH",
    "NOT-EXECUTED",
    "DUP",
    "KEY-UNSTABLE",
    "KEY-INCOMPLETE",
    "DISK-HIT",
    "AUTOTUNE",
    "CAPTURE-UNSAFE",
    "BUDGET",
    "GATE-IGNORED",
    "NOT-JIT",
)


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding.

    `kind` is one of `KINDS`; `field` the argument or option it is about, `warmed` and `seen` its
    values in words of the backend key, `smallest_input` the smallest launch that shows it, `advice`
    what to do.
    """

    kind: str
    kernel: str
    message: str
    field: str = ""
    warmed: str = ""
    seen: str = ""
    smallest_input: str = ""
    advice: str = ""
