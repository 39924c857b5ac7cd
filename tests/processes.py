"""Whether a process has ended, whoever started it."""

from __future__ import annotations

from pathlib import Path


def ended(pid) -> bool:
    """No such process, or one whose status nobody has asked for yet."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
