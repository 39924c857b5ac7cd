"""A process with everything that it has started, ended as one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

# A killed process still gives its memory back: 0.1 s for gigabytes, more for a GPU's.
LIMIT_S = 30.0
_POLL_S = 0.001


@contextlib.contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that leads a group of its own. Whatever ends the block early, Ctrl-C above
    all, ends the group; otherwise it is left to be ended and reaped.

    An interrupt that comes while the process starts is met in the block: `Popen` would pass it on
    and forget the process, which then nobody ends.
    """
    with _put_off() as meet:
        leader = subprocess.Popen(command, start_new_session=True, **options)
        try:
            meet()
            yield leader
        except BaseException:
            if leader.returncode is None:
                end(leader)
                leader.wait()
            raise


@contextlib.contextmanager
def _put_off() -> Iterator[Callable[[], None]]:
    """Interrupts wait until the function that this gives is called, or for the end of the block."""
    before: dict[int, Any] = {}
    came: list[int] = []

    def meet() -> None:
        while before:
            signal.signal(*before.popitem())
        while came:
            signal.raise_signal(came.pop())

    try:
        if threading.current_thread() is threading.main_thread():  # signals come nowhere else
            for number in (signal.SIGINT, signal.SIGTERM):
                # One that is ignored stays so in the process that is started.
                if callable(handler := signal.getsignal(number)):
                    before[number] = handler
                    signal.signal(number, lambda number, _: came.append(number))
        yield meet
    finally:
        meet()


def wait_for(leader: subprocess.Popen[bytes]) -> None:
    """Wait until `leader` has ended. It is left to be reaped, so that it can be given to `end`."""
    os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)


def end(leader: subprocess.Popen[bytes]) -> tuple[int, ...]:
    """Kill the group that `leader` leads and wait until none of it runs; it is left to be reaped.

    `leader` is from `running` and is not reaped yet, though it may have ended: only then does its
    number name its group and nothing else. Returns the processes that still run after `LIMIT_S`,
    which no signal ends: the kernel is busy in them.
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
