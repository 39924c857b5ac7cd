"""All environment variables of jitwarm, one typed reader each.

A value that is not one of the words below is an error.
"""

from __future__ import annotations

import os

from jitwarm.errors import UsageError

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def strict() -> bool:
    """JITWARM_STRICT: a registration outside any scope raises (default off)."""
    return _flag("JITWARM_STRICT")


def jobs() -> int | None:
    """JITWARM_JOBS: compile threads; unset means one a core."""
    return _count("JITWARM_JOBS")


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
