"""Who hears of compiles, loads and tunings: one list of sinks for all backends.

A backend tells its events here and asks here before it compiles. Hook points in a compiler's own
code are in that backend's `hooks` module; they are put in place when the first sink attaches, or
when the compiler is imported later, by anybody, and taken out when the last sink leaves, so an
unwatched process runs the compiler's own code.
"""

from __future__ import annotations

import importlib
import logging
import threading
from typing import Any, Protocol, cast

from jitwarm.backends.imports import ImportWatch
from jitwarm.backends.miss import Miss

# The modules with hook points, in the order in which they are installed.
_HOOKS = tuple(f"jitwarm.backends.{name}.hooks" for name in ("triton", "cutedsl", "fa4"))


class Sink(Protocol):
    """Who wants to know. Called in the thread that launches or compiles."""

    def on_miss(self, miss: Miss) -> Any:
        """Before the disk cache or the compiler is asked, or (kind `tune`) anything is timed.

        Raising refuses the launch; a returned object is used as the kernel. For a tuning it says
        that the choice is one between such objects, and goes with the sink.
        """

    def on_refused(self, miss: Miss) -> None:
        """Some sink refused it."""

    def on_compiled(self, miss: Miss) -> None:
        """After it, whatever the end."""

    def on_loaded(self, kernel: str, text: str, ms: float) -> None:
        """A module was loaded, and made ready to launch."""

    def on_tuned(self, kernel: str, text: str, ms: float, configs: int = 0) -> None:
        """`configs` configurations of a kernel were timed against each other (0: not known)."""


class Hooks(Protocol):
    """The hook points of one compiler.

    `MODULE` is the compiler's module whose import makes `install` find them; it is empty where
    `install` imports the compiler itself.
    """

    MODULE: str

    def install(self) -> None:
        """Put the hooks in place, where they are not.

        Does nothing where the compiler was not imported to its end. Raises `HookPointMissing` if
        this version of it lacks a hook point; then it has put none in place.
        """

    def remove(self) -> None:
        """Put back what was there."""

    def forget(self, sink: Sink) -> None:
        """Drop what this sink served in the compiler's caches."""


_lock = threading.RLock()
_sinks: tuple[Sink, ...] = ()
_watch: ImportWatch | None = None
_installing = False
# A compiler was imported, and its hook points may still have to be put in place.
_stale = False


def attach(sink: Sink) -> None:
    """Add a sink; the first one installs the hooks of every compiler in this process.

    Raises `HookPointMissing` if a compiler lacks a hook point: then nothing is attached.
    """
    global _sinks
    with _lock:
        if not _sinks:
            try:
                _watch_imports()  # first: what is imported from here on is told
                _install()
            except BaseException:
                _remove()
                raise
        _sinks = (*_sinks, sink)
    _catch_up()


def detach(sink: Sink) -> None:
    """Remove a sink; the last one takes the hooks out, except where somebody wrapped ours: there
    ours pass through.
    """
    global _sinks
    with _lock:
        _sinks = tuple(other for other in _sinks if other is not sink)
        try:
            for hooks in _all_hooks():
                hooks.forget(sink)
        finally:  # what `forget` tells the sink may raise: a warning of it, where these are errors
            if not _sinks:
                _remove()
    _catch_up()


def only(sink: Sink) -> None:
    """Make `sink` the only one, for a forked child: its parent's sinks live on in the parent.

    The lock of the parent may be held by one of its threads, which is not here to release it.
    """
    global _sinks, _lock, _installing
    _lock, _installing = threading.RLock(), False
    _sinks = (sink,)
    _watch_imports()
    _install()


def active() -> bool:
    """Whether anybody watches."""
    return bool(_sinks)


def serving() -> bool:
    """Whether start-up is over for anybody who watches: a warm-up is then a stall as well."""
    return any(getattr(sink, "serving", False) for sink in _sinks)


def refresh() -> None:
    """Watch compilers too that were imported since the first sink attached.

    Raises `HookPointMissing` if one of them lacks a hook point; the others are watched all the
    same.
    """
    with _lock:
        if _sinks:
            _install()
    _catch_up()


def ask(miss: Miss) -> tuple[Sink, Any] | None:
    """What the sinks say of a miss: None, or a sink and a kernel to use instead of a compile.

    Raises what a sink raises to refuse it, after all of them heard of the refusal.
    """
    sinks = _sinks
    try:
        answers = [(sink, sink.on_miss(miss)) for sink in sinks]
    except BaseException:
        for sink in sinks:
            sink.on_refused(miss)
        raise
    return next((answer for answer in answers if answer[1] is not None), None)


def compiled(miss: Miss) -> None:
    """Tell the end of a miss: `miss.kind`, `miss.ms` and `miss.stages` are set."""
    for sink in _sinks:
        sink.on_compiled(miss)


def loaded(kernel: str, text: str, ms: float) -> None:
    """Tell of a load of the key `text`; `ms` is wall time."""
    for sink in _sinks:
        sink.on_loaded(kernel, text, ms)


def tuned(kernel: str, text: str, ms: float, configs: int = 0) -> None:
    """Tell of a tuning of the key `text`, of `configs` configurations; `ms` is wall time, compiles
    inside it included.
    """
    for sink in _sinks:
        sink.on_tuned(kernel, text, ms, configs)


def _all_hooks() -> list[Hooks]:
    return [cast("Hooks", importlib.import_module(name)) for name in _HOOKS]


def _install() -> None:
    """Install all hooks that are not there; raises the first error of those that cannot be.

    The lock is held.
    """
    global _installing
    errors: list[Exception] = []
    _installing = True
    try:
        for hooks in _all_hooks():
            try:
                hooks.install()
            except Exception as error:  # one compiler must not cost the others
                errors.append(error)
    finally:
        _installing = False
    if errors:
        raise errors[0]


def _remove() -> None:
    """Take everything out. The lock is held."""
    global _watch
    if _watch is not None:
        _watch.stop()
        _watch = None
    for hooks in _all_hooks():
        hooks.remove()


def _watch_imports() -> None:
    global _watch
    if _watch is None:
        _watch = ImportWatch({hooks.MODULE for hooks in _all_hooks()} - {""}, _imported)
    _watch.start()


def _imported() -> None:
    global _stale
    _stale = True
    _catch_up()


def _catch_up() -> None:
    """Install the hooks of what was imported meanwhile, or leave that to whoever holds the lock,
    who calls this after it.

    An importing thread must not wait for the lock: its holder may itself wait for that import.
    Nor must its import fail: what a compiler lacks is logged, and raised by the next `refresh`.
    """
    global _stale
    lock = _lock
    while _stale and lock.acquire(blocking=False):
        try:
            if _installing:  # by this very thread, further out
                return
            _stale = False
            if _sinks:
                _install()
        except Exception:
            log = logging.getLogger("jitwarm")
            log.exception("a compiler that was imported just now cannot be watched")
        finally:
            lock.release()
