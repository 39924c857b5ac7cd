"""Compilers that the monitor does not see: which of them this process has.

What is not said here would be taken for silence: "0 compiles" is true only of what was watched.
"""

from __future__ import annotations

import sys
from importlib import util
from typing import Literal, NamedTuple

import msgspec

from jitwarm.versions import installed

State = Literal["imported", "installed"]


class BlindSpot(msgspec.Struct, frozen=True):
    """A compiler that is `imported` in this process, or `installed` and might be; `version` of its
    package, empty where that does not say; `message` is what is not seen of it.
    """

    library: str
    state: State
    message: str
    version: str = ""

    def __str__(self) -> str:
        """One line."""
        name = f"{self.library} {self.version}".strip()
        return f"{name} is {self.state}: {self.message}"


class _Compiler(NamedTuple):
    """`module` is the one whose import says that it is in use. A part of another package has no
    `distribution`, and is told only when it is imported.
    """

    library: str
    module: str
    distribution: str
    message: str


_OWN = "it compiles by itself on a first use, and nothing of that is seen"
_INDUCTOR = (
    "its direct calls of triton.compile are not seen and cannot be refused; a load of one of its "
    "kernels is seen, under the kernel's bare name"
)
_NVRTC = "it calls NVRTC or nvcc on a first use, and that is not seen"
_NINJA = "it builds CUDA modules on a first use, and that is not seen; its CuTe DSL kernels are"
_KNOWN = (
    _Compiler("torch Inductor", "torch._inductor.compile_fx", "", _INDUCTOR),
    _Compiler("DeepGEMM", "deep_gemm", "deep-gemm", _NVRTC),
    _Compiler("FlashInfer", "flashinfer", "flashinfer-python", _NINJA),
    _Compiler("TileLang", "tilelang", "tilelang", _OWN),
    _Compiler("Numba", "numba", "numba", _OWN),
    _Compiler("CuPy", "cupy", "cupy", _NVRTC),
    _Compiler("Warp", "warp", "warp-lang", _OWN),
    _Compiler("JAX", "jax", "jax", "XLA compiles each new shape, and that is not seen"),
)


def blind_spots(*, parts: bool = False) -> tuple[BlindSpot, ...]:
    """The compilers of this process that the monitor does not see, imported ones first.

    With `parts` also those that come as a part of an installed package and are not imported: every
    torch has Inductor, and few processes use it. Imports nothing.
    """
    found: list[BlindSpot] = []
    for one in _KNOWN:
        state: State = "imported" if one.module in sys.modules else "installed"
        package = one.module.partition(".")[0] if parts else one.distribution and one.module
        if state == "imported" or (package and _is_installed(package)):
            found.append(
                BlindSpot(
                    one.library,
                    state,
                    one.message,
                    installed(one.distribution),
                )
            )
    return tuple(sorted(found, key=lambda spot: spot.state != "imported"))


def _is_installed(module: str) -> bool:
    try:
        spec = util.find_spec(module)
    except (ImportError, ValueError):  # somebody's finder is broken, or the module has no spec
        return False
    return spec is not None and spec.origin is not None  # a folder of that name is no package
