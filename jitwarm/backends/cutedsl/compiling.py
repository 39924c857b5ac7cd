"""One compile: trace, passes, wrapping; on the stub device its launch does nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jitwarm.backends import sinks
from jitwarm.backends.cutedsl import library
from jitwarm.backends.miss import Miss, being_served, serving

OPTIONS = "--enable-tvm-ffi"

# In a forked child nothing is launched: the engine that would (100 to 200 ms) is not made.
_exporting: ContextVar[bool] = ContextVar("jitwarm_cutedsl_exporting", default=False)


class NothingLaunched:
    """What a compile gives on the stub device: the real binary in `compiled`, a call that does
    nothing.

    Everything else (`export_to_c`, `artifacts`) is that of `compiled`.
    """

    def __init__(self, compiled: Any) -> None:
        """`compiled` is what the library returned."""
        self.compiled = compiled

    def __call__(self, *_args: Any, **_kwargs: Any) -> None:
        """One launch; the arguments are not looked at."""

    def __getattr__(self, name: str) -> Any:
        """What the compiled function offers."""
        return getattr(self.compiled, name)


class NullExecutor:
    """Stands for a binary in a key replay, which only wants to know the keys."""

    def __call__(self, *_args: Any, **_kwargs: Any) -> None:
        """One launch."""


def fake_stream(*, use_tvm_ffi_env_stream: bool = True) -> Any:
    """The stream argument of a compile.

    With `use_tvm_ffi_env_stream` the compiled function takes no stream: it launches on torch's
    current one. Raises `MissingExtraError` without the library.
    """
    cute = library.load("a CuTe DSL kernel", tvm_ffi=False)
    return cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=use_tvm_ffi_env_stream)


def compile_entry(
    entry: Any,
    *fake_args: Any,
    options: str = OPTIONS,
    use_tvm_ffi_env_stream: bool = True,
) -> Any:
    """Compile `entry` (a `@cute.jit` function or an object with one as `__call__`) for arguments
    like `fake_args`, a fake stream appended; returns the executor.

    Launches nothing, loads nothing, needs no GPU on the stub device. Other threads wait: one
    process compiles one function at a time. Raises what the compiler raises, and
    `MissingExtraError` without the library.
    """
    who = type(entry).__qualname__ if not hasattr(entry, "__qualname__") else entry.__qualname__
    cute = library.load(f"CuTe DSL kernel {who}", tvm_ffi="--enable-tvm-ffi" in options)
    arch = library.architecture(options)
    settings = options if "--gpu-arch" in options else f"{options} --gpu-arch {arch}".strip()
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=use_tvm_ffi_env_stream)
    more = {"no_jit_engine": True} if _exporting.get() else {}
    with library.compiling(arch):
        compiled = cute.compile(entry, *fake_args, stream, options=settings, **more)
    return NothingLaunched(compiled) if library.is_stub() else compiled


@contextmanager
def exporting() -> Iterator[None]:
    """In this block compiles are for export: what they return cannot be launched."""
    token = _exporting.set(True)
    try:
        yield
    finally:
        _exporting.reset(token)


def ready(kernel: Any, key: Any) -> Any:
    """The executor of `key`, compiled now if it is missing; two threads that miss it together
    compile it once.

    The sinks are asked first, and told how it ended: one may refuse (then this raises), or give a
    null kernel (then this returns a `NullExecutor`, and nothing is stored). Returns None where
    `kernel.compile(key)` stored nothing.
    """
    cache = kernel._compiled_cache
    executor = cache.get(key)
    if executor is not None:
        return executor
    with cache.once(key):
        executor = cache.get(key)
        if executor is not None:
            return executor
        path, text = kernel.object_path, kernel.backend_key(key)
        miss = Miss(path.partition("#")[0], text)
        if sinks.ask(miss) is not None:
            return NullExecutor()
        try:
            with serving(miss):
                if not library.is_imported():  # a second or two of the first compile of a process
                    start = time.perf_counter()
                    library.load(kernel.kernel_name, tvm_ffi=False)
                    library.import_what_compiles_need()
                    miss.stages["import"] = (time.perf_counter() - start) * 1e3
                kernel.compile(key)
        finally:
            sinks.compiled(miss)
        return cache.get(key)


def is_inside_ready(kernel: Any, key: Any) -> bool:
    """Whether this thread serves a miss of exactly this key, in `ready`."""
    miss = being_served()
    return miss is not None and miss.text == kernel.backend_key(key)
