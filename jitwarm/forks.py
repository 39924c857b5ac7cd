"""Functions in forked children: a process of its own for each, and what it answers as a value.

Not `multiprocessing`: its processes cannot be started from daemonic ones, and a function made
inside another one cannot be sent to them. The parent must have no second thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.002
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a child: what it answered, or the `problem` that kept it from answering, one
    line, and `trace`, the traceback in the child.
    """

    answer: bytes = b""
    problem: str = ""
    trace: str = ""


def run_each(
    functions: Sequence[Callable[[], bytes]], *, at_once: int, limit_s: float
) -> list[Ended]:
    """Call each function in a forked child, at most `at_once` at a time, and return their answers
    in order.

    A child that has not ended after `limit_s` seconds is killed, and with it whatever it runs by
    this function. Children of this process that are not ours are left alone.
    """
    ended: dict[int, Ended] = {}
    with tempfile.TemporaryDirectory(prefix="jitwarm-", ignore_cleanup_errors=True) as folder:
        running: dict[int, tuple[int, float]] = {}
        waiting = list(range(len(functions)))
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    number = waiting.pop(0)
                    child = _start(functions[number], Path(folder) / str(number))
                    running[number] = (child, time.monotonic())
                ended |= _collect(running, Path(folder), limit_s)
                time.sleep(_POLL_S)
        finally:
            for child, _ in running.values():
                # An interrupt can come when it was waited for, and is still among those that run.
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
    return [ended[number] for number in range(len(functions))]


def ends_with(parent: int) -> bool:
    """Have this process killed when `parent`, which forked it, ends (on Linux); False if it has.

    The thread that forked it is meant: it must not end before this process.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def _collect(
    running: dict[int, tuple[int, float]], folder: Path, limit_s: float
) -> dict[int, Ended]:
    """Take those that have ended, or must end, out of `running`."""
    ended = {}
    for number, (child, start) in list(running.items()):
        found, status = os.waitpid(child, os.WNOHANG)
        late = time.monotonic() - start > limit_s
        if not found and not late:
            continue
        if not found:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        del running[number]
        ended[number] = _ended(folder / str(number), status, limit_s if not found else 0.0)
    return ended


def _ended(answer: Path, status: int, limit_s: float) -> Ended:
    if limit_s:
        return Ended(problem=f"it did not end within {limit_s:g} s")
    problem = answer.with_suffix(".problem")
    if problem.exists():
        line, _, trace = problem.read_text().partition("\n")
        return Ended(problem=line, trace=trace)
    if not answer.exists():
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
        return Ended(problem=f"its process ended with {how} and no answer")
    return Ended(answer.read_bytes())


def _start(function: Callable[[], bytes], answer: Path) -> int:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or the child writes the parent's text once more
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        if ends_with(parent):
            made = answer.with_suffix(".new")
            made.write_bytes(function())
            made.rename(answer)
    except BaseException as error:  # nothing may leave this child but its answer
        line = " ".join(f"{type(error).__name__}: {error}".split())
        text = "".join(traceback.format_exception(error))
        answer.with_suffix(".problem").write_text(f"{line}\n{text}")
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)  # not the parent's clean-up
