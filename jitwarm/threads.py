"""Threads that a model has started: which of them run, and waiting for what they are at.

An engine may hand launches to a thread of its own, and return from a step before they are made.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType

from jitwarm.amounts import counted

# Without a launch or an event for so long, what threads are at is no traffic: they sleep, or wait.
QUIET_S = 2.0
# Where all of them are of pools and wait for work, the next piece of it comes within microseconds,
# on a busy machine when its thread gets a processor.
IDLE_S = 0.25
LIMIT_S = 30.0
_POLL_S = 0.01
UNSEEN = (
    "what a thread launches after the replay is not seen: a step has to return when its launches "
    "are made"
)
_SHOWN = 3


def others() -> list[threading.Thread]:
    """The threads of this process, but for the main one and the caller's."""
    own = (threading.main_thread(), threading.current_thread())
    # Of a thread that Python did not start nobody knows when it ends.
    foreign = threading._DummyThread
    return [one for one in threading.enumerate() if one not in own and not isinstance(one, foreign)]


def running() -> list[threading.Thread]:
    """Those of `others` that are at something: not in a pool, waiting for work."""
    frames = sys._current_frames()
    return [one for one in others() if not _waits_in_pool(frames.get(one.ident or 0))]


def settle(seen: Callable[[], int]) -> None:
    """Wait while other threads make launches: `seen` counts what was seen of them so far.

    Ends when nothing was seen for `QUIET_S` and no thread compiles, and after `LIMIT_S` in any
    case. Costs nothing where there is no other thread.
    """
    begin = last = time.monotonic()
    count = seen()
    while others():
        time.sleep(_POLL_S)
        now, before, count = time.monotonic(), count, seen()
        busy = running()
        if count != before or _compiling(busy):
            last = now
        if now - last > (QUIET_S if busy else IDLE_S) or now - begin > LIMIT_S:
            return


def names(threads: Iterable[threading.Thread]) -> tuple[str, ...]:
    """Their names, sorted."""
    return tuple(sorted(one.name for one in threads))


def still_run(names: Iterable[str]) -> str:
    """`2 threads still run: a, b`."""
    names = list(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    verb = "still runs" if len(names) == 1 else "still run"
    return f"{counted(len(names), 'thread')} {verb}: {', '.join(names[:_SHOWN])}{more}"


def _waits_in_pool(frame: FrameType | None) -> bool:
    return (
        frame is not None
        and frame.f_globals.get("__name__") == "concurrent.futures.thread"
        and frame.f_code.co_name == "_worker"
    )


def _compiling(threads: Iterable[threading.Thread]) -> bool:
    """Whether one of them is inside a compile or a load: all of those pass our hooks."""
    frames = sys._current_frames()
    for one in threads:
        frame = frames.get(one.ident or 0)
        while frame is not None:
            if str(frame.f_globals.get("__name__")).startswith("jitwarm.backends."):
                return True
            frame = frame.f_back
    return False
