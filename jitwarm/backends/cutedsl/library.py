"""The library itself: imported on first use, told the architecture, and held by one lock."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

from jitwarm import device
from jitwarm.backends import sinks
from jitwarm.errors import DeviceError, MissingExtraError

# Its compiler keeps the options and the kernels of "the" compile in one object of the process: two
# threads give each other's code, hang or abort. Whoever compiles, or forks, holds this.
compile_lock = threading.RLock()

_ARCH_OPTION = re.compile(r"--gpu-arch[= ]+(\S+)")


def load(who: str, *, tvm_ffi: bool = True) -> Any:
    """Import the library and return its module `cutlass.cute`.

    Raises `MissingExtraError`, which says that `who` needs it, where it is not installed (or, with
    `tvm_ffi`, where that is not).
    """
    try:
        cute = importlib.import_module("cutlass.cute")
        if tvm_ffi:
            importlib.import_module("tvm_ffi")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("cutlass", "tvm_ffi"):
            raise
        package = {"cutlass": "nvidia-cutlass-dsl", "tvm_ffi": "apache-tvm-ffi"}[missing]
        raise MissingExtraError(who, package, "cutedsl") from error
    sinks.refresh()  # whoever watches is to see the compiles of this library from now on
    return cute


def is_imported() -> bool:
    """Whether this process has the library."""
    return "cutlass.cute" in sys.modules


def import_what_compiles_need() -> None:
    """Import what the library itself would import in its first compile: seconds, where torch is one
    of them, which each forked child would pay again.
    """
    for name in (
        "cutlass.cutlass_dsl.tvm_ffi_provider",
        "cutlass.cute._tvm_ffi_args_spec_converter",
        "cutlass.base_dsl.tvm_ffi_builder",
    ):
        with contextlib.suppress(ImportError):  # private modules: only their import time is wanted
            importlib.import_module(name)


def architecture(options: str = "") -> str:
    """What kernels are compiled for, as in `sm_90a`: the architecture in `options`, that of the
    stub device, or what the library says of the GPU (its CUTE_DSL_ARCH included).

    Raises `DeviceError` where there is neither. The library itself would take sm_100a there.
    """
    chosen = _ARCH_OPTION.search(options)
    if chosen is not None:
        return chosen[1]
    active = _active_device()
    if active is not None and active.kind == "stub":
        return _name(active.arch.removeprefix("sm"))
    if active is None and not _has_gpu():
        raise DeviceError(
            "CuTe DSL has no device here: call jitwarm.device.activate('cuda'), or ('stub', "
            "'sm90') without a GPU, before a kernel compiles"
        )
    if importlib.util.find_spec("cutlass") is not None:
        from cutlass.cutlass_dsl import CuTeDSL

        return str(CuTeDSL._get_dsl().envar.arch)
    return _name((active or device.activate("cuda")).arch.removeprefix("sm"))


@functools.cache
def _name(number: str) -> str:
    """As the library names the architecture of a GPU that it finds."""
    return f"sm_{number}a" if int(number) >= 90 else f"sm_{number}"


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def is_stub() -> bool:
    """Whether launches have to do nothing here."""
    active = _active_device()
    return active is not None and active.kind == "stub"


@contextlib.contextmanager
def compiling(arch: str) -> Iterator[None]:
    """Hold the compiler. On the stub device have it compile for `arch`, which is also what a kernel
    reads of the architecture while it is traced.
    """
    from cutlass import cutlass_dsl

    with compile_lock:
        if is_stub():
            for name in ("CuTeDSL", "CuteExperimentalDSL"):
                kind = getattr(cutlass_dsl, name, None)
                if kind is not None:
                    kind._get_dsl().envar.arch = arch
        yield


def why_not_here() -> str:
    """Why nothing of CuTe DSL can be compiled in this process, as one line; empty where it can."""
    try:
        load("CuTe DSL warm-up", tvm_ffi=False)
        arch = architecture()
    except (MissingExtraError, DeviceError) as error:
        return str(error)
    from cutlass.cutlass_dsl import CuTeDSL

    try:
        with compiling(arch):
            CuTeDSL._get_dsl().get_arch_enum()
    except (KeyError, ValueError):
        return f"CuTe DSL does not compile for {arch}"
    return ""


def _active_device() -> device.Device | None:
    try:
        return device.current()
    except DeviceError:
        return None
