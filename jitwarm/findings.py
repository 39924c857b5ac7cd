"""Findings: what planning, replay and proof have to say, in one form."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal[
    "MISS",  # a launch needs a key that is not warmed
    "UNREACHED",  # a warmed key that no launch needs
    "UNDECLARED",  # a kernel that nobody warms
    "UNREAD",  # an argument that is specialised and never read
    "KEY-UNSTABLE",  # the key, or the binary served, depends on process, order or history
    "KEY-INCOMPLETE",  # two programs under one key, or a key whose inputs give another
    "BUDGET",  # a space that grows without bound, or costs more than it may
    "ENVELOPE",  # a launch outside of what was declared to be possible
    "DISK-HIT",  # fetched from disk while serving: a stall, and no compile
    "AUTOTUNE",  # configurations were timed against each other while serving
    "NOT-EXECUTED",  # compiled, not loaded: its first launch pays for the load
    "CAPTURE-UNSAFE",  # compiled or loaded while a graph is captured
    "WARM-CRASH",  # the warm-up of a key failed
    "GATE-IGNORED",  # something was warmed although warm-up is switched off
    "DUP",  # one key compiled by several processes, or several times
    "STORE-UNSAFE",  # a cache folder that processes cannot share
    "NOT-JIT",  # a slow step, and nothing was compiled, loaded or tuned in it
]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding.

    `field` is the argument or option it is about, `warmed` and `seen` its values in words of the
    backend key, `smallest` the smallest input that shows it, `site` where the launch came from,
    `owners` the layers that registered the kernel, `advice` what to do.
    """

    kind: Kind
    kernel: str
    message: str
    field: str = ""
    warmed: str = ""
    seen: str = ""
    advice: str = ""
    smallest: str = ""
    site: str = ""
    owners: tuple[str, ...] = ()


class FindingWarning(UserWarning):
    """A finding of a plan, where no report shows it: warm-up of a registry in an engine."""
