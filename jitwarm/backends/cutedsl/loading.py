"""Make a compiled function load its module before its first launch."""

from __future__ import annotations

import time
from typing import Any

from jitwarm import keys
from jitwarm.backends import sinks
from jitwarm.backends.cutedsl.compiling import NothingLaunched, ready


def load_executor(kernel: Any, key: Any) -> str:
    """Make the executor of `key` load its module on the current device, once.

    A native function of the compiler loads on request. A tvm-ffi function loads at its first launch
    only, so it is launched once with the arguments of `kernel.scratch_launch(key)`; without that
    method nothing is done, and the doubt is returned in words. On the stub device there is nothing
    to load.
    """
    executor = ready(kernel, key)
    token = keys.exact(key)
    if isinstance(executor, NothingLaunched) or kernel._loaded.get(token) is executor:
        return ""
    start = time.perf_counter()
    scratch = getattr(kernel, "scratch_launch", None)
    if hasattr(executor, "to") and not is_tvm_ffi(executor):
        executor.to()
    elif scratch is not None:
        executor(*scratch(key))
        _synchronize()
    else:
        return (
            f"{kernel.kernel_name} loads its module at its first launch: the class has no "
            "scratch_launch(key)"
        )
    ms = (time.perf_counter() - start) * 1e3
    kernel._loaded[token] = executor
    sinks.loaded(kernel.object_path.partition("#")[0], kernel.backend_key(key), ms)
    return ""


def _synchronize() -> None:
    """Wait for the GPU, whether or not this process told jitwarm of its device."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def is_tvm_ffi(executor: Any) -> bool:
    """Whether this is a tvm-ffi function: compiled here, or loaded from what a child exported."""
    return any(
        kind.__name__ in ("Function", "TVMFFIJitCompiledFunctionBase")
        and kind.__module__.partition(".")[0] in ("tvm_ffi", "cutlass")
        for kind in type(executor).__mro__
    )
