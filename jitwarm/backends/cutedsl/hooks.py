"""Where jitwarm watches CuTe DSL: three wrapped methods and one registered callback.

* `BaseDSL.generate_mlir` is reached by every trace that is not inside another one: by
  `cute.compile`, and by each implicit call of a `@cute.jit` function, which traces again even if
  its binary is there.
* `BaseDSL.compile_and_cache` is reached when the traced module is not in memory, before the disk
  cache or the compiler is asked: here a compile of somebody else's is named and, if a sink raises,
  refused. Its key is only known after the trace.
* `Compiler.compile` runs the compiler's passes, so it alone tells a compile from a disk hit.
* the trace-finalise callback hands out the traced module, whose digest names the key.

Compiles of our own classes are asked for and told in `compiling.ready`, before their trace: in here
they get their stages. The same places are there in 4.6.0, 4.7.1 and 4.8.1.
"""

from __future__ import annotations

import functools
import hashlib
import io
import threading
import time
from collections.abc import Callable
from typing import Any

from jitwarm.backends import imports, sinks
from jitwarm.backends.hookpoints import require
from jitwarm.backends.miss import Miss, being_served, serving

# The module that is imported last of those we touch: half an import is none.
MODULE = "cutlass.cute"

_local = threading.local()
_installed: _Installation | None = None


def install() -> None:
    """Wrap the library's hook points, where they are not wrapped by us.

    Does nothing as long as nobody imported the library. Raises `HookPointMissing` if this version
    lacks a hook point. Called by `sinks`, under its lock.
    """
    global _installed
    if _installed is None and hasattr(imports.complete(MODULE), "compile"):
        _installed = _Installation()


def remove() -> None:
    """Take the wrappers out, except where somebody wrapped ours: there ours pass through."""
    global _installed
    if _installed is not None:
        _installed.remove()
        _installed = None


def forget(sink: sinks.Sink) -> None:
    """Null kernels are never given to somebody else's code, so there is nothing to withdraw."""


class _Trace:
    """One trace of this thread: its function and target, when it began, its module's digest."""

    def __init__(self, dsl: Any, body: Any) -> None:
        name = str(getattr(body, "__qualname__", "function")).removesuffix(".__call__")
        self.name = f"{getattr(body, '__module__', '')}.{name}"
        # The library resets the options at the end of a trace.
        self.arch = dsl.compile_options.gpu_arch or dsl.envar.arch or ""
        self.start = time.perf_counter()
        self.ms: float | None = None
        self.digest = ""
        self.told = False

    def finished(self, module: Any, options: str) -> None:
        """The trace is over; `module` is what it made."""
        self.ms = (time.perf_counter() - self.start) * 1e3
        if being_served() is None:
            self.digest = _digest(module, options)

    def miss(self) -> Miss:
        """The miss of this trace's key."""
        miss = Miss(self.name, f"{self.name}[{self.digest}]{{{self.arch}}}")
        if self.ms is not None:
            miss.stages["trace"] = self.ms
        return miss


def _on_traced(dsl: Any, module: Any, _function_name: str) -> None:
    """The library's callback; it cannot be taken back, and does nothing while nobody watches."""
    trace: _Trace | None = getattr(_local, "trace", None)
    if trace is not None and _installed is not None:
        trace.finished(module, dsl.compile_options.to_str())


class _Installation:
    """Our wrappers, each over what it found in its place."""

    def __init__(self) -> None:
        from cutlass import cutlass_dsl
        from cutlass.base_dsl.compiler import Compiler
        from cutlass.base_dsl.dsl import BaseDSL

        self._replaced: list[tuple[Any, str, Any, Any]] = []
        points = (
            (BaseDSL, "generate_mlir", self._over_generate_mlir),
            (BaseDSL, "compile_and_cache", self._over_compile_and_cache),
            (Compiler, "compile", self._over_compile),
        )
        for owner, name, _ in points:  # all of them are there, or none is wrapped
            require("cutedsl", "nvidia-cutlass-dsl", owner, (name,))
        kinds = [getattr(cutlass_dsl, n, None) for n in ("CuTeDSL", "CuteExperimentalDSL")]
        found = [kind for kind in kinds if kind is not None]
        for kind in found:
            require("cutedsl", "nvidia-cutlass-dsl", kind, ("_get_dsl",))
            require("cutedsl", "nvidia-cutlass-dsl", kind, ("register_trace_finalize_hook",))
        for owner, name, over in points:
            self._wrap(owner, name, over)
        for kind in found:
            kind._get_dsl().register_trace_finalize_hook(_on_traced)

    def remove(self) -> None:
        """Put everything back that nobody else has replaced since."""
        for owner, name, original, ours in self._replaced:
            if getattr(owner, name, None) is ours:
                setattr(owner, name, original)

    def _wrap(self, owner: Any, name: str, over: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        ours = functools.wraps(original)(over(original))
        self._replaced.append((owner, name, original, ours))
        setattr(owner, name, ours)

    def _over_generate_mlir(self, original: Any) -> Any:
        def generate_mlir(dsl: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
            if _installed is not self:
                return original(dsl, body, *args, **kwargs)
            outer = getattr(_local, "trace", None)
            trace = _local.trace = _Trace(dsl, body)
            try:
                result = original(dsl, body, *args, **kwargs)
            finally:
                _local.trace = outer
            if trace.ms is not None and not trace.told and being_served() is None:
                # The binary was in memory, and was found only after tracing it once more.
                miss = trace.miss()
                miss.kind, miss.ms = "trace", trace.ms
                sinks.compiled(miss)
            return result

        return generate_mlir

    def _over_compile_and_cache(self, original: Any) -> Any:
        def compile_and_cache(dsl: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
            if _installed is not self:
                return original(dsl, module, *args, **kwargs)
            trace = getattr(_local, "trace", None) or _Trace(dsl, kwargs.get("funcBody"))
            trace.told = True
            served = being_served()
            if served is not None:
                if trace.ms is not None:
                    served.stages["trace"] = served.stages.get("trace", 0.0) + trace.ms
                return original(dsl, module, *args, **kwargs)
            trace.digest = trace.digest or _digest(module, dsl.compile_options.to_str())
            miss = trace.miss()
            # A null kernel is of no use to somebody else's code, which would keep it: it compiles.
            sinks.ask(miss)
            cached = bool(args) and args[0] is not None
            try:
                with serving(miss):
                    result = original(dsl, module, *args, **kwargs)
                    miss.kind = "disk_hit" if cached and "passes" not in miss.stages else "compile"
            finally:
                miss.ms += trace.ms or 0.0
                sinks.compiled(miss)
            return result

        return compile_and_cache

    def _over_compile(self, original: Any) -> Any:
        def compile_(compiler: Any, *args: Any, **kwargs: Any) -> Any:
            served = being_served()
            if _installed is not self or served is None:
                return original(compiler, *args, **kwargs)
            start = time.perf_counter()
            try:
                return original(compiler, *args, **kwargs)
            finally:
                ms = (time.perf_counter() - start) * 1e3
                served.stages["passes"] = served.stages.get("passes", 0.0) + ms

        return compile_


def _digest(module: Any, options: str) -> str:
    """What tells two traced modules apart: 16 digits over their code and the compile options."""
    code = io.BytesIO()
    module.operation.write_bytecode(code)
    return hashlib.sha256(code.getvalue() + options.encode()).hexdigest()[:16]
