"""Whether a process has ended, whoever started it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def ended(pid) -> bool:
    """No such process, or one whose status nobody has asked for yet."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def ends(pid) -> bool:
    """Whether a process ends that the kernel kills because its parent has: nobody waits for it.

    One that does not is ended here.
    """
    limit = time.monotonic() + 30
    while not ended(pid):
        if time.monotonic() > limit:
            os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.01)
    return True
