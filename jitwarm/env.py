"""All environment variables that jitwarm reads for itself, one typed reader each.

A value of its own variables that is not one of the words below is an error.
"""

from __future__ import annotations

import os

from jitwarm.errors import UsageError

# The variables of jitwarm's own.
NAMES = ("JITWARM_JOBS", "JITWARM_STRICT")

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def strict() -> bool:
    """JITWARM_STRICT: a registration outside any scope raises (default off)."""
    return _flag("JITWARM_STRICT")


def jobs() -> int | None:
    """JITWARM_JOBS: compile threads; unset means one a core."""
    return _count("JITWARM_JOBS")


def triton_interprets() -> bool:
    """TRITON_INTERPRET, as Triton reads it: kernels are interpreted, and none is compiled."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


def github_actions() -> bool:
    """GITHUB_ACTIONS: this is a step of GitHub Actions, which reads annotations from its log."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def github_step_summary() -> str:
    """GITHUB_STEP_SUMMARY: the file that GitHub shows as this step's summary; empty elsewhere."""
    return os.environ.get("GITHUB_STEP_SUMMARY", "")


def snapshot() -> dict[str, str]:
    """All variables of this process as they are now: `doctor` tells which ones matter."""
    return dict(os.environ)


def _flag(name: str) -> bool:
    value = os.environ.get(name, "").strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise UsageError(f"{name}={value!r}: expected one of {', '.join(_TRUE + _FALSE[:-1])}")


def _count(name: str) -> int | None:
    value = os.environ.get(name, "").strip()
    if not value:
        return None
    if value.isascii() and value.isdigit() and int(value) >= 1:
        return int(value)
    raise UsageError(f"{name}={value!r}: expected a whole number of at least 1")
