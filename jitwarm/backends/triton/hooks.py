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

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from jitwarm.backends import sinks
from jitwarm.backends.hookpoints import require, require_parameters
from jitwarm.backends.miss import Miss
from jitwarm.backends.triton import tuning
from jitwarm.backends.triton.binder import spelling_of
from jitwarm.backends.triton.hits import count_miss, remember
from jitwarm.backends.triton.keytext import key_text, specialization_from_compile
from jitwarm.backends.triton.miss import Listener, listener_before, serve
from jitwarm.backends.triton.naming import import_path

MODULE = ""  # `install` imports Triton

# What our wrapper of `JITFunction._do_compile` passes on, the same in Triton 3.6 to 3.9.
_DO_COMPILE = (
    "self",
    "key",
    "signature",
    "device",
    "constexprs",
    "options",
    "attrs",
    "warmup",
)

_local = threading.local()
# What `_pack_args` keeps for `_do_compile`: the function, pairs, arguments and options of a launch.
_NOTHING: tuple[Any, Any, Any, Any] = (None, (), {}, {})
_installed: _Installation | None = None
# Kernels that a sink served instead of compiling: they leave Triton's caches with the sink.
_served: list[tuple[sinks.Sink, Any, int, str, Any]] = []


def install() -> None:
    """Wrap Triton's hook points, where they are not wrapped by us.

    Raises `HookPointMissing` if this Triton lacks one. Called by `sinks`, under its lock.
    """
    global _installed
    if _installed is None:
        check()
        _installed = _Installation()
    tuning.install()


def check() -> None:
    """Raise `HookPointMissing` if this Triton lacks a hook point. Changes nothing."""
    from triton import knobs
    from triton.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction

    require("triton", "triton", JITFunction, ("_pack_args", "_do_compile"))
    require("triton", "triton", CompiledKernel, ("_init_handles",))
    require("triton", "triton", knobs.compilation, ("listener",))
    require_parameters("triton", "triton", JITFunction, "_do_compile", _DO_COMPILE)
    tuning.check()


def remove() -> None:
    """Take the wrappers out, except where somebody wrapped ours: there ours pass through."""
    global _installed
    if _installed is not None:
        _installed.remove()
        _installed = None
    tuning.remove()


def forget(sink: sinks.Sink) -> None:
    """Take the kernels that `sink` served instead of compiling out of Triton's caches, and the
    choices between them out of its autotuners.
    """
    for entry in [entry for entry in _served if entry[0] is sink]:
        _served.remove(entry)
        _, fn, device, key, kernel = entry
        caches = fn.device_caches.get(device)
        if caches is not None and dict.get(caches[0], key) is kernel:
            del caches[0][key]
    tuning.forget(sink)


def prepay() -> None:
    """Make the first refusal of a process cheap: Triton's first bind imports some fifty modules
    (40-63 ms). Raises `DeviceError` where there is no device to bind for.
    """
    from jitwarm.backends.triton.compiler import current_device
    from jitwarm.backends.triton.probe import bind_probe

    current_device()
    bind_probe()


class _Installation:
    """Our wrappers, each over what it found in its place.

    Each installation has wrappers of its own: those of an earlier one that somebody wrapped stay
    below his for good, and pass through.
    """

    def __init__(self) -> None:
        from triton.compiler import CompiledKernel
        from triton.runtime.jit import JITFunction

        self._replaced: list[tuple[Any, str, Any, Any]] = []
        # Each listener of ours, and the one it calls.
        self._listeners: list[tuple[Listener, Listener | None]] = []
        self._wrap(JITFunction, "_pack_args", self._over_pack_args)
        self._wrap(JITFunction, "_do_compile", self._over_do_compile)
        self._wrap(CompiledKernel, "_init_handles", self._over_init_handles)
        self.chain_listener()

    def remove(self) -> None:
        """Put everything back that nobody else has replaced since."""
        from triton import knobs

        for owner, name, original, ours in self._replaced:
            if getattr(owner, name, None) is ours:
                setattr(owner, name, original)
        for ours, following in reversed(self._listeners):
            if knobs.compilation.listener is ours:
                knobs.compilation.listener = following

    def chain_listener(self) -> None:
        """Put a listener of ours first, one that calls the one that was there.

        Called on each miss as well: others may have set theirs since.
        """
        from triton import knobs

        current = knobs.compilation.listener
        if not any(current is ours for ours, _ in self._listeners):
            ours = listener_before(current)
            self._listeners.append((ours, current))
            knobs.compilation.listener = ours

    def _wrap(self, owner: Any, name: str, over: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        ours = functools.wraps(original)(over(original))
        self._replaced.append((owner, name, original, ours))
        setattr(owner, name, ours)

    def _over_pack_args(self, original: Any) -> Any:
        def pack_args(fn: Any, backend: Any, kwargs: Any, bound: Any, pairs: Any, opts: Any) -> Any:
            """Keep the binder's pairs, the arguments and the options as written: `_do_compile` is
            called next and is given none of them.
            """
            packed = original(fn, backend, kwargs, bound, pairs, opts)
            _local.specialization = (fn, pairs, bound, opts)
            return packed

        return pack_args

    def _over_do_compile(self, original: Any) -> Any:
        def do_compile(
            fn: Any,
            key: str,
            signature: Any,
            device: Any,
            constexprs: Any,
            options: Any,
            attrs: Any,
            warmup: bool,
        ) -> Any:
            bound, pairs, arguments, written = getattr(_local, "specialization", _NOTHING)
            _local.specialization = _NOTHING

            def compile_natively() -> Any:
                return original(fn, key, signature, device, constexprs, options, attrs, warmup)

            if _installed is not self:
                return compile_natively()
            if bound is not fn:  # `preload` compiles without binding
                pairs = specialization_from_compile(fn, signature, constexprs, attrs)
                arguments, written = {}, {}
            _, _, target, backend, _ = fn.device_caches[device]
            text = key_text(fn, pairs, options, backend, target, strict=False)
            remember(fn, device, key, text)
            count_miss(fn, device, key)
            values = _whole_numbers(fn, arguments)
            miss = Miss(import_path(fn), text, key, values=values, spelling=spelling_of(written))
            served = sinks.ask(miss)
            if served is not None:
                sink, kernel = served
                fn.device_caches[device][0][key] = kernel
                _served.append((sink, fn, device, key, kernel))
                return kernel
            self.chain_listener()
            try:
                return serve(miss, compile_natively)
            finally:
                sinks.compiled(miss)

        return do_compile

    def _over_init_handles(self, original: Any) -> Any:
        def init_handles(kernel: Any) -> Any:
            # Called on each launch: the loaded kernel must get through quickly.
            if kernel.module is not None or _installed is not self:
                return original(kernel)
            start = time.perf_counter()
            result = original(kernel)
            ms = (time.perf_counter() - start) * 1e3
            path, text = getattr(kernel, "jitwarm_key", (kernel.name, kernel.name))
            sinks.loaded(path, text, ms)
            return result

        return init_handles


def _whole_numbers(fn: Any, arguments: Any) -> dict[str, int]:
    """The whole numbers among a launch's run-time arguments, of which the key has only classes."""
    constants = {param.name for param in fn.params if param.is_constexpr}
    return {
        name: value
        for name, value in arguments.items()
        if type(value) is int and name not in constants
    }
