"""Findings: what planning, replay and proof have to say, in one form."""

from __future__ import annotations

from typing import Literal

import msgspec

# MISS: a launch needed a key that was not warmed. DISK-HIT: it was warmed and fetched again all the
# same. UNDECLARED: a kernel nobody warms. KEY-UNSTABLE: the binary served depends on the order.
Kind = Literal["MISS", "DISK-HIT", "UNDECLARED", "KEY-UNSTABLE"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding.

    `field` is the argument or option it is about, `warmed` and `seen` its values in words of the
    backend key, `advice` what to do.
    """

    kind: Kind
    kernel: str
    message: str
    field: str = ""
    warmed: str = ""
    seen: str = ""
    advice: str = ""


class FindingWarning(UserWarning):
    """A finding of a plan, where no report shows it: warm-up of a registry in an engine."""
