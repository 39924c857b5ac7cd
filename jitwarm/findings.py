"""Findings: what planning, replay and proof have to say, in one form."""

from __future__ import annotations

from typing import Literal

import msgspec

# MISS: a launch needed a key that was not warmed. DISK-HIT: it was warmed and fetched again all the
# same. UNDECLARED: a kernel nobody warms. KEY-UNSTABLE: the binary served depends on the order.
Kind = Literal["MISS", "DISK-HIT", "UNDECLARED", "KEY-UNSTABLE"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding.

    `field` the argument or option it is about, `warmed` and `seen` its
    values in words of the backend key, `smallest_input` the smallest launch that shows it, `advice`
    what to do.
    """

    kind: Kind
    kernel: str
    message: str
    field: str = ""
    warmed: str = ""
    seen: str = ""
    smallest_input: str = ""
    advice: str = ""
