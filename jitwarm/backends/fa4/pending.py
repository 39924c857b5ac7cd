"""Misses of the library that it has not served yet. It tells nobody of a launch that raises between
its look into a cache and its compile, so such a miss is told as failed when its thread comes by
again, or when somebody stops watching.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from jitwarm.backends import sinks
from jitwarm.backends.miss import Miss
from jitwarm.observe.events import Kind

Asked = tuple[str, tuple[Any, ...]]  # the function whose cache was asked, and the key


@dataclass(slots=True)
class _Pending:
    """A miss that the library is about to compile, or compiles.

    `code` is of the function that asked: while it runs, the miss has not failed yet.
    """

    asked: Asked
    miss: Miss
    since: float
    code: CodeType


_lock = threading.Lock()
_pending: dict[int, _Pending] = {}  # by thread: whoever stops watching has to hear of all


def begin(asked: Asked, miss: Miss, since: float, code: CodeType) -> None:
    """The library, in the function with `code`, is about to compile in this thread."""
    with _lock:
        _pending[threading.get_ident()] = _Pending(asked, miss, since, code)


def miss_of_this_thread() -> Miss | None:
    """What this thread's compile serves."""
    entry = _pending.get(threading.get_ident())
    return None if entry is None else entry.miss


def end_compiled(asked: Asked) -> None:
    """Tell of this thread's miss, if it is this one: the library has compiled it."""
    thread = threading.get_ident()
    entry = _pending.get(thread)
    if entry is not None and entry.asked == asked and _taken(thread, entry) is entry:
        _tell("compile", entry)


def end_failed() -> None:
    """Tell of a miss of this thread for which the library stored nothing: it has failed."""
    if _pending and (entry := _taken(threading.get_ident())) is not None:
        _tell("failed", entry)


def end_all_failed(leaving: sinks.Sink) -> None:
    """As `end_failed`, for every thread's misses whose launch is over, before a sink leaves.

    `leaving` is told here: it may not be among the sinks any more.
    """
    running = sys._current_frames()
    for thread, entry in list(_pending.items()):
        if not _runs(entry.code, running.get(thread)) and _taken(thread, entry) is entry:
            _tell("failed", entry)
            leaving.on_compiled(entry.miss)


def _taken(thread: int, only: _Pending | None = None) -> _Pending | None:
    """The thread's entry, which is no longer pending; with `only` none but that one."""
    with _lock:
        if only is not None and _pending.get(thread) is not only:
            return None
        return _pending.pop(thread, None)


def _tell(kind: Kind, entry: _Pending) -> None:
    """The end of a miss; its time is up to now."""
    entry.miss.kind = kind
    entry.miss.ms = (time.perf_counter() - entry.since) * 1e3
    sinks.compiled(entry.miss)


def _runs(code: CodeType, frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
