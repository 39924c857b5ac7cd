"""Where jitwarm watches Triton: two wrapped methods and one chained listener.

* `JITFunction._do_compile` is reached on every in-process miss, before the disk cache or the
  compiler is asked: here a miss is seen, named and, if a sink raises, refused.
* `CompiledKernel._init_handles` builds the launcher and loads the module; Triton's own load hooks
  leave the launcher out (161 ms against 0.2 ms on Triton 3.6), so the whole call is timed.
* `knobs.compilation.listener` alone can tell a compile from a disk hit.

In-process hits pass none of these; `hits.py` counts them. What is not seen: kernels compiled
outside Triton's JIT runtime.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from jitwarm.backends.triton.hits import count_miss, remember
from jitwarm.backends.triton.keytext import key_text, specialization_from_compile
from jitwarm.backends.triton.naming import import_path


@dataclass(slots=True)
class Miss:
    """One in-process miss while it is being served.

    `kind` is None until Triton says `compile` or `disk_hit`; `failed` and `skipped` (a user's hook
    returned True) are the other ends. `stages` are milliseconds a compiler stage. `manual` is True
    for `kernel.warmup(...)`.
    """

    kernel: str
    text: str
    in_process: str
    manual: bool
    kind: str | None = None
    stages: dict[str, float] = field(default_factory=dict)
    ms: float = 0.0


class Sink(Protocol):
    """Who wants to know. Called in the thread that launches or compiles."""

    def on_miss(self, miss: Miss) -> Any:
        """Before the disk cache or the compiler is asked.

        Raising refuses the launch; a returned object is used as the kernel.
        """

    def on_compiled(self, miss: Miss) -> None:
        """After it, whatever the end."""

    def on_loaded(self, kernel: str, text: str, ms: float) -> None:
        """A launcher was built and a module loaded."""


_lock = threading.Lock()
_sinks: tuple[Sink, ...] = ()
_local = threading.local()
_originals: dict[str, Any] = {}
_previous_listener: Callable[..., Any] | None = None


def attach(sink: Sink) -> None:
    """Add a sink; the first one installs the wrappers.

    Raises AttributeError if this Triton lacks a hook point.
    """
    global _sinks
    with _lock:
        if not _sinks:
            _install()
        _sinks = (*_sinks, sink)


def detach(sink: Sink) -> None:
    """Remove a sink; the last one takes the wrappers out, except where somebody wrapped ours: there
    ours pass through.
    """
    global _sinks
    with _lock:
        _sinks = tuple(other for other in _sinks if other is not sink)
        if not _sinks:
            _uninstall()


def prepay() -> None:
    """Make the first refusal of a process cheap: Triton's first bind imports some fifty modules
    (40-63 ms).
    """
    from jitwarm.backends.triton.probe import bind_probe

    bind_probe()


def _install() -> None:
    from triton.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction

    _originals["pack"] = JITFunction._pack_args
    _originals["compile"] = JITFunction._do_compile
    _originals["load"] = CompiledKernel._init_handles
    JITFunction._pack_args = _pack_args
    JITFunction._do_compile = _do_compile
    CompiledKernel._init_handles = _init_handles
    _chain_listener()


def _uninstall() -> None:
    global _previous_listener
    from triton import knobs
    from triton.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction

    for owner, name, ours, key in (
        (JITFunction, "_pack_args", _pack_args, "pack"),
        (JITFunction, "_do_compile", _do_compile, "compile"),
        (CompiledKernel, "_init_handles", _init_handles, "load"),
    ):
        if getattr(owner, name) is ours:
            setattr(owner, name, _originals[key])
    if knobs.compilation.listener is _listener:
        knobs.compilation.listener = _previous_listener
        _previous_listener = None


def _chain_listener() -> None:
    """Put our listener first and call the one that was there; a listener set later by others is
    chained at the next miss.
    """
    global _previous_listener
    from triton import knobs

    if knobs.compilation.listener is not _listener:
        _previous_listener = knobs.compilation.listener
        knobs.compilation.listener = _listener


def _pack_args(
    self: Any, backend: Any, kwargs: Any, bound_args: Any, specialization: Any, options: Any
) -> Any:
    """Keep the binder's pairs for `_do_compile`, which is called next and is not given them."""
    _local.specialization = (self, specialization)
    return _originals["pack"](self, backend, kwargs, bound_args, specialization, options)


def _do_compile(
    self: Any,
    key: str,
    signature: Any,
    device: Any,
    constexprs: Any,
    options: Any,
    attrs: Any,
    warmup: bool,
) -> Any:
    original = _originals["compile"]
    bound: tuple[Any, Any] = getattr(_local, "specialization", (None, None))
    fn, specialization = bound
    _local.specialization = (None, None)
    if not _sinks:
        return original(self, key, signature, device, constexprs, options, attrs, warmup)
    if fn is not self:  # `preload` compiles without binding
        specialization = specialization_from_compile(self, signature, constexprs, attrs)
    _, _, target, backend, _ = self.device_caches[device]
    text = key_text(self, specialization, options, backend, target)
    remember(self, device, key, text)
    count_miss(self, device, key)
    miss = Miss(import_path(self), text, key, warmup)
    for sink in _sinks:
        replacement = sink.on_miss(miss)
        if replacement is not None:
            self.device_caches[device][0][key] = replacement
            return replacement
    _chain_listener()
    outer = getattr(_local, "miss", None)
    _local.miss = miss
    start = time.perf_counter()
    try:
        kernel = original(self, key, signature, device, constexprs, options, attrs, warmup)
        if kernel is None:
            miss.kind = "skipped"
        else:
            kernel.jitwarm_key = (miss.kernel, text)  # a load names the key it belongs to
    except BaseException:
        miss.kind = "failed"
        raise
    finally:
        miss.ms = (time.perf_counter() - start) * 1e3
        _local.miss = outer
        for sink in _sinks:
            sink.on_compiled(miss)
    return kernel


def _init_handles(self: Any) -> Any:
    if self.module is not None or not _sinks:
        return _originals["load"](self)
    start = time.perf_counter()
    result = _originals["load"](self)
    ms = (time.perf_counter() - start) * 1e3
    kernel, text = getattr(self, "jitwarm_key", (self.name, self.name))
    for sink in _sinks:
        sink.on_loaded(kernel, text, ms)
    return result


def _listener(*, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
    miss = getattr(_local, "miss", None)
    if miss is not None:
        miss.kind = "disk_hit" if cache_hit else "compile"
        stages = {"init": times.ir_initialization / 1e3}
        stages |= {name: us / 1e3 for name, us in times.lowering_stages}
        miss.stages = {} if cache_hit else stages | {"store": times.store_results / 1e3}
    if _previous_listener is not None:
        _previous_listener(
            src=src,
            metadata=metadata,
            metadata_group=metadata_group,
            times=times,
            cache_hit=cache_hit,
        )
