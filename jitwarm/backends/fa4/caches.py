"""The library's caches of compiled kernels, watched.

Each kernel of the library's forward path has a cache, an attribute of the function that launches
it; the function asks `key in cache`, compiles and stores if not, and launches `cache[key]`. While
anybody watches, ours stands in that attribute, over the library's own. A key that the library has
in memory passes through; another is a miss: asked about first, then looked for on disk by the
library, then compiled. In a probe every key passes for compiled, and is written down.

A first launch, which loads the module, is told as a load. Keys that got into the library's memory
while nobody watched count as launched: the library compiles where it launches. What this misses: a
kernel that was compiled under watch and first launched without.

`_flash_attn_fwd` is the main kernel. Beside it: `_get_scheduler_metadata` (schedule of split KV),
`_flash_attn_fwd_combine` (adds the splits up), `_compute_tile_cumsum` and
`_compute_blocks_to_batch` (table of requests for batches above 256). These five are all that the
forward path of 4.0.0b36 compiles.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jitwarm.backends import launches, sinks
from jitwarm.backends.cutedsl import library as cutedsl
from jitwarm.backends.fa4 import library, pending
from jitwarm.backends.fa4.keytext import key_text, path_of
from jitwarm.backends.fa4.pending import Asked
from jitwarm.backends.miss import Miss, serving

Compile = tuple[tuple[Any, ...], dict[str, Any]]  # arguments of `cutlass.cute.compile`


class _State(threading.local):
    """What this thread is doing."""

    def __init__(self) -> None:
        self.probe: list[Asked] | None = None
        self.capture: dict[Asked, Compile] | None = None
        self.captured_for: Asked | None = None


_state = _State()


@contextmanager
def probing() -> Iterator[list[Asked]]:
    """Inside the block this thread's calls compile nothing; gives the keys they asked for."""
    outer = _state.probe
    asked: list[Asked] = []
    _state.probe = asked
    try:
        yield asked
    finally:
        _state.probe = outer


@contextmanager
def capturing() -> Iterator[dict[Asked, Compile]]:
    """Inside the block this thread's calls do not compile what is missing; gives what they would
    have compiled.
    """
    outer = _state.capture
    captured: dict[Asked, Compile] = {}
    _state.capture = captured
    try:
        yield captured
    finally:
        _state.capture = outer


@dataclass(slots=True)
class WatchedCache:
    """Stands over the cache of `function`; `original` keeps what is compiled.

    `served` are keys that a sink serves with a kernel that does nothing; `known` is how many keys
    the library had in memory when nobody watched any more.
    """

    function: str
    original: Any
    texts: dict[tuple[Any, ...], str] = field(default_factory=dict)
    launched: set[tuple[Any, ...]] = field(default_factory=set)
    served: dict[tuple[Any, ...], sinks.Sink] = field(default_factory=dict)
    known: int = 0

    def resume(self) -> None:
        """Somebody watches again: keys that came meanwhile have been launched."""
        if len(self.original.cache) > self.known:
            self.launched.update(list(self.original.cache)[self.known :])

    def pause(self) -> None:
        """Nobody watches any more."""
        self.known = len(self.original.cache)

    def text(self, key: tuple[Any, ...]) -> str:
        """The canonical text of a key."""
        found = self.texts.get(key)
        if found is None:
            found = self.texts[key] = key_text(self.function, key)
        return found

    def in_memory(self, key: tuple[Any, ...]) -> bool:
        """Whether a launch of this key would find it at once."""
        return key in self.original.cache or key in self.served

    def forget(self, sink: sinks.Sink) -> None:
        """Drop the keys that this sink serves."""
        self.served = {key: by for key, by in self.served.items() if by is not sink}

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        """Whether the library need not compile this key."""
        if _state.probe is not None:
            _state.probe.append((self.function, key))
            return True
        pending.end_failed()
        if self.in_memory(key):
            return True
        if _state.capture is not None:
            _state.captured_for = (self.function, key)
            return False
        self.launched.discard(key)  # of a kernel that was dropped
        miss = Miss(path_of(self.function), self.text(key))
        answer = sinks.ask(miss)
        if answer is not None:
            self.served[key] = answer[0]
            return True
        start = time.perf_counter()
        if key in self.original:
            miss.kind, miss.ms = "disk_hit", (time.perf_counter() - start) * 1e3
            sinks.compiled(miss)
            return True
        pending.begin((self.function, key), miss, start, sys._getframe(1).f_code)
        return False

    def __setitem__(self, key: tuple[Any, ...], kernel: Any) -> None:
        """The library compiled this key."""
        if _state.capture is not None:
            return
        self.original[key] = kernel
        pending.end_compiled((self.function, key))

    def __getitem__(self, key: tuple[Any, ...]) -> Any:
        """The kernel, to launch it: the library asks once a launch."""
        if launches.counting():
            launches.count(self.text(key))
        if key in self.served and key not in self.original.cache:
            return _nothing
        kernel = self.original[key]
        if key in self.launched:
            return kernel
        self.launched.add(key)
        if not sinks.active():  # as in a warm-up before anybody watches: loaded from here on
            return kernel
        return _first_launch(kernel, path_of(self.function), self.text(key))

    def __getattr__(self, name: str) -> Any:
        """Everything else that the library's cache offers."""
        return getattr(self.original, name)


class WatchedCompiler:
    """Stands for the compiler's module in the library's interface: `compile` is timed, one at a
    time, and told as the miss that it serves; everything else passes through.
    """

    def __init__(self, original: Any) -> None:
        """`original` is `cutlass.cute`."""
        self.original = original

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        """As `cutlass.cute.compile`."""
        if _state.capture is not None and _state.captured_for is not None:
            _state.capture[_state.captured_for] = (args, kwargs)
            return None
        miss = pending.miss_of_this_thread()
        with cutedsl.compiling(library.target()), library.quiet():
            if miss is None:
                return self.original.compile(*args, **kwargs)
            try:
                with serving(miss):
                    return self.original.compile(*args, **kwargs)
            except BaseException:
                pending.end_failed()
                raise

    def __getattr__(self, name: str) -> Any:
        """What the compiler's module has."""
        return getattr(self.original, name)


def _first_launch(kernel: Any, path: str, text: str) -> Callable[..., Any]:
    """The kernel's first launch since it is watched, which loads its module, timed."""

    def launch(*args: Any) -> Any:
        start = time.perf_counter()
        result = kernel(*args)
        sinks.loaded(path, text, (time.perf_counter() - start) * 1e3)
        return result

    return launch


def _nothing(*_: Any) -> None:
    """A kernel that does nothing."""
