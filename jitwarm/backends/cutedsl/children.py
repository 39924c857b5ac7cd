"""Compiles in forked children, for backends on CuTe DSL's compiler: one process compiles one key at
a time.

Each key gets a child of its own, `jobs` of them at a time: what a child does wrong costs its key
only. Threads of the parent are not in the child, so a lock that one of them held stays locked there
for good: a child that uses no processor time is ended, like one that runs for ever.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from jitwarm import atomic, forks
from jitwarm.backends import ProcessBackend, sinks
from jitwarm.backends.cutedsl import library
from jitwarm.backends.miss import Miss
from jitwarm.observe.events import Kind

STALLED_S = 30.0
LONGEST_S = 900.0
# A compiler that ends like this would take the process that called it with it.
CRASHES = frozenset((signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE))
_ENDED, _UNKNOWN = -2, -1
_AT_ITS_END = "has ended"


class Told(msgspec.Struct):
    """A miss that a child served: what its parent tells the sinks."""

    kernel: str
    text: str
    kind: Kind
    ms: float
    stages: dict[str, float]


class Reply(msgspec.Struct):
    """What a child has to say: a file for each recipe and what it compiled, or a traceback."""

    paths: list[str] = []
    told: list[Told] = []
    error: str = ""


@dataclass(frozen=True, slots=True)
class Handed:
    """A child's files, one a recipe; `misses` is what it compiled, `seconds` its wall time."""

    paths: tuple[Path, ...]
    misses: tuple[Miss, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Unserved:
    """A child that handed nothing over; `crashed` names the signal of a compiler's crash."""

    reason: str
    crashed: str = ""


@dataclass(slots=True)
class _Child:
    """A running child of ours; its end of the pipe closes with it."""

    task: int
    pid: int
    pipe: int
    reply: Path
    started: float = field(default_factory=time.monotonic)
    cpu: int = _UNKNOWN
    cpu_at: float = field(default_factory=time.monotonic)

    def stuck(self, now: float) -> str:
        """Why it should be ended, if it should."""
        cpu = _processor_ticks(self.pid)
        if cpu == _ENDED:  # another child of this process may hold the pipe open
            return _AT_ITS_END
        if cpu != self.cpu:
            self.cpu, self.cpu_at = cpu, now
        if now - self.cpu_at > STALLED_S:
            return f"used no processor time for {STALLED_S:.0f} s"
        if now - self.started > LONGEST_S:
            return f"ran for {LONGEST_S:.0f} s"
        return ""


def compile_in_children(
    backend: ProcessBackend, tasks: Sequence[Sequence[Any]], jobs: int, folder: Path
) -> Generator[tuple[int, Handed | Unserved]]:
    """Compile each task, the recipes of one key, in a child of its own; yields the number of a task
    and what became of it, in the order in which they end.

    Raises OSError where this machine has no process or file left for another child. Files go into
    `folder`, which must be private and exist until they are read. Closing the
    iterator ends the children that still run. A task whose child crashed is tried once more.
    """
    waiting: deque[int] = deque(range(len(tasks)))
    running: dict[int, _Child] = {}
    tried: set[int] = set()
    with selectors.DefaultSelector() as ended:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    child = _start(backend, waiting.popleft(), tasks, folder)
                    running[child.pipe] = child
                    ended.register(child.pipe, selectors.EVENT_READ)
                done = [key.fd for key, _ in ended.select(timeout=1.0)]
                stuck = {}
                for pipe, child in running.items():
                    reason = "" if pipe in done else child.stuck(time.monotonic())
                    if reason == _AT_ITS_END:
                        done.append(pipe)
                    elif reason:
                        stuck[pipe] = reason
                        os.kill(child.pid, signal.SIGKILL)
                for pipe in (*done, *stuck):
                    child = running.pop(pipe)
                    ended.unregister(pipe)
                    result = _collect(child, stuck.get(pipe, ""))
                    again = isinstance(result, Unserved) and result.crashed
                    if again and child.task not in tried:
                        tried.add(child.task)
                        waiting.append(child.task)
                    else:
                        yield child.task, result
        finally:
            for child in running.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)
                _collect(child, "ended with its parent's warm-up")


def _start(
    backend: ProcessBackend, task: int, tasks: Sequence[Sequence[Any]], folder: Path
) -> _Child:
    reply = folder / f"{task}.json"
    for stream in (sys.stdout, sys.stderr):  # or the child would write what is buffered once more
        with contextlib.suppress(Exception):
            stream.flush()
    parent = os.getpid()
    read, write = os.pipe()
    # Whoever compiles holds the lock, so no thread is inside the compiler while the process forks.
    with library.compile_lock, warnings.catch_warnings():
        # Python 3.12 warns of any fork in a process with threads; the module's docstring says what
        # that means here.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            pid = os.fork()
        except OSError:
            os.close(read)
            os.close(write)
            raise
    if pid == 0:
        os.close(read)
        _child(backend, tasks[task], folder, reply, parent)
    os.close(write)
    return _Child(task, pid, read, reply)


def _child(
    backend: ProcessBackend, recipes: Sequence[Any], folder: Path, reply: Path, parent: int
) -> NoReturn:
    """Everything that a child does. It ends here, whatever happens: nothing of its parent's is
    finished, flushed or cleaned up by it.
    """
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if forks.ends_with(parent):
            recorder = _Recorder()
            sinks.only(recorder)
            answer = Reply(told=recorder.told)
            try:
                answer.paths = [str(backend.compile_in_child(one, folder)) for one in recipes]
            except BaseException:  # the parent compiles it itself and gets the error at first hand
                answer.error = traceback.format_exc()
            atomic.write_bytes(reply, msgspec.json.encode(answer))
            code = 0
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:  # a child must not return into its parent's code
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        os._exit(code)


class _Recorder:
    """The sink of a child."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    def on_miss(self, miss: Miss) -> None:
        """Nothing is refused: its parent is warming up."""

    def on_refused(self, miss: Miss) -> None:
        """Never."""

    def on_compiled(self, miss: Miss) -> None:
        """For the parent."""
        kind = miss.kind or "failed"
        self.told.append(Told(miss.kernel, miss.text, kind, miss.ms, miss.stages))

    def on_loaded(self, kernel: str, text: str, ms: float) -> None:
        """A child loads nothing that its parent could use."""

    def on_tuned(self, kernel: str, text: str, ms: float, configs: int = 0) -> None:
        """A child has no device."""


def _collect(child: _Child, ended: str) -> Handed | Unserved:
    """Wait for a child that is at its end, and read what it left. `ended` says why we ended it."""
    os.close(child.pipe)
    status = 0
    with contextlib.suppress(ChildProcessError):  # somebody else waited for all children
        status = os.waitpid(child.pid, 0)[1]
    if ended:
        return Unserved(ended)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.strsignal(number) or f"signal {number}"
        return Unserved(f"was ended: {name}", name if number in CRASHES else "")
    try:
        answer = msgspec.json.decode(child.reply.read_bytes(), type=Reply)
    except (OSError, msgspec.DecodeError) as error:
        return Unserved(f"left no answer: {error}")
    if answer.error:
        return Unserved(answer.error)
    misses = []
    for told in answer.told:
        miss = Miss(told.kernel, told.text, kind=told.kind, stages=told.stages, ms=told.ms)
        misses.append(miss)
    seconds = time.monotonic() - child.started
    return Handed(tuple(map(Path, answer.paths)), tuple(misses), seconds)


def _processor_ticks(pid: int) -> int:
    """User and system time of a process in clock ticks; less than 0 where it cannot be asked."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        fields = text.rpartition(")")[2].split()
        return _ENDED if fields[0] == "Z" else int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return _UNKNOWN
