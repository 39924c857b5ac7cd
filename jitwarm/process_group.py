"""A process with everything that it has started, ended as one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

# A killed process still gives its memory back: 0.1 s for gigabytes, more for a GPU's.
LIMIT_S = 30.0
_POLL_S = 0.001


def wait_for(leader: subprocess.Popen[bytes]) -> None:
    """Wait until `leader` has ended. It is left to be reaped, so that it can be given to `end`."""
    os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)


def end(leader: subprocess.Popen[bytes]) -> tuple[int, ...]:
    """Kill the group that `leader` leads and wait until none of it runs; it is left to be reaped.

    `leader` was started with `start_new_session=True` and is not reaped yet, though it may have
    ended: only then does its number name its group and nothing else. Returns the processes that
    still run after `LIMIT_S`, which no signal ends: the kernel is busy in them.
    """
    os.killpg(leader.pid, signal.SIGKILL)
    start = time.monotonic()
    while (running := members(leader.pid)) and time.monotonic() - start < LIMIT_S:
        time.sleep(_POLL_S)
    return running


def members(group: int) -> tuple[int, ...]:
    """The processes of a group that run: not those that have ended and were not reaped yet."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended since it was listed
            # After the name, which may hold anything: state, parent, group; threads are the 18th.
            fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
            # One whose first thread has ended is a zombie while the others still run.
            runs = fields[0] not in "ZX" or int(fields[17]) > 1
            if runs and int(fields[2]) == group:
                found.append(int(place.name))
    return tuple(sorted(found))
