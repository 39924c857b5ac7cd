"""Where jitwarm watches flash-attn-4: the cache of each function of its forward path, and the
compiler's module in the library's own interface.

Watched are launches of the library by anybody in this process. Not watched: its backward path, and
kernels launched through objects that were taken out of its caches.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jitwarm.backends.fa4 import library, pending
from jitwarm.backends.fa4.caches import WatchedCache, WatchedCompiler
from jitwarm.backends.fa4.keytext import FIELDS
from jitwarm.backends.hookpoints import require
from jitwarm.backends.sinks import Sink

MODULE = library.INTERFACE

_lock = threading.RLock()
_users = 0
_for_sinks = False
_watched: dict[str, WatchedCache] = {}


def install() -> None:
    """Watch, if the library is imported. Raises `HookPointMissing` if it has no such caches."""
    global _for_sinks
    interface = library.imported()
    with _lock:
        if not _for_sinks and interface is not None:
            _enter(interface)
            _for_sinks = True


def remove() -> None:
    """Put the library's own back; while a call of ours is under way, after that."""
    global _for_sinks
    with _lock:
        if _for_sinks:
            _for_sinks = False
            _leave(library.imported())


def forget(sink: Sink) -> None:
    """Keys that this sink served are misses again; failed launches that nobody has heard of are
    told.
    """
    for watched in _watched.values():
        watched.forget(sink)
    pending.end_all_failed(sink)


@contextmanager
def watching(interface: Any) -> Iterator[dict[str, WatchedCache]]:
    """The watched caches by function, in place inside the block."""
    with _lock:
        _enter(interface)
    try:
        yield _watched
    finally:
        pending.end_failed()
        with _lock:
            _leave(interface)


def _enter(interface: Any) -> None:
    global _users
    if not _users:
        require("fa4", "flash-attn-4", interface, (*FIELDS, "cute"))
        for name in FIELDS:
            require("fa4", "flash-attn-4", getattr(interface, name), ("compile_cache",))
        found = {name: getattr(interface, name).compile_cache for name in FIELDS}
        for name, original in found.items():
            if name not in _watched or _watched[name].original is not original:
                _watched[name] = WatchedCache(name, original)
            _watched[name].resume()
            getattr(interface, name).compile_cache = _watched[name]
        interface.cute = WatchedCompiler(interface.cute)
    _users += 1


def _leave(interface: Any) -> None:
    global _users
    _users -= 1
    if not _users:
        for name, watched in _watched.items():
            watched.pause()
            function = getattr(interface, name)
            if function.compile_cache is watched:
                function.compile_cache = watched.original
        if isinstance(interface.cute, WatchedCompiler):
            interface.cute = interface.cute.original
