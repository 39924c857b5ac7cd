"""One question of `jitwarm doctor` in a process of its own: `python -m jitwarm.doctor.probe WHAT
REPLY.json`.

A library whose import crashes, hangs or starts a CUDA context takes this process with it and not
the doctor.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from jitwarm import atomic
from jitwarm.errors import HookPointMissing, InterpretedError

# The backends that watch a compiler, and the distribution that each watches.
BACKENDS = {"triton": "triton", "cutedsl": "nvidia-cutlass-dsl", "fa4": "flash-attn-4"}


class ProbeReply(msgspec.Struct, frozen=True):
    """What a probe found. `state` is `ok`, `missing` (a hook point) or `broken`; `problem` says
    why, in one line. `facts` are the probe's own.
    """

    state: str = "ok"
    problem: str = ""
    facts: dict[str, Any] = {}


def probe_hooks(backend: str) -> dict[str, Any]:
    """Import the compiler and put its hooks in place, for a moment.

    Raises `HookPointMissing`, or whatever the import raises.
    """
    hooks = importlib.import_module(f"jitwarm.backends.{backend}.hooks")
    if hooks.MODULE:
        importlib.import_module(hooks.MODULE)
    hooks.install()
    hooks.remove()
    return {}


def probe_torch(_: str) -> dict[str, Any]:
    """Torch's version, the CUDA it is built for (empty: none), and whether it can use a GPU."""
    import torch

    built_for = str(torch.version.cuda or "")
    usable = bool(built_for) and torch.cuda.is_available()
    return {"version": str(torch.__version__), "cuda": built_for, "usable": usable}


def probe_stub(_: str) -> dict[str, Any]:
    """Compile a kernel for every architecture of the stub device, and launch it on one.

    Caches are where the environment says: the caller gives an empty folder.
    """
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_kernel

    from jitwarm.backends.triton.probe import _probe
    from jitwarm.backends.triton.stub import ARCHES
    from jitwarm.device import activate, check_compiles

    try:
        check_compiles()
    except InterpretedError as error:
        return {"arches": list(ARCHES), "compiled": [], "problems": [str(error)]}
    compiled = []
    problems = []
    for arch in ARCHES:
        source = ASTSource(_probe, {"x_ptr": "*i32", "n": "i32", "BLOCK": "constexpr"}, {(2,): 16})
        try:
            kernel = compile_kernel(source, target=GPUTarget("cuda", int(arch[2:]), 32))
        except Exception as error:
            problems.append(f"{arch}: {_line(error)}")
            continue
        if kernel.asm.get("cubin"):
            compiled.append(arch)
        else:
            problems.append(f"{arch}: the compiler made no binary")
    activate("stub", ARCHES[0])
    _probe[(1,)](torch.zeros(16, dtype=torch.int32), 16, BLOCK=16)
    return {"arches": list(ARCHES), "compiled": compiled, "problems": problems}


PROBES: dict[str, Callable[[str], dict[str, Any]]] = {
    "torch": probe_torch,
    "stub": probe_stub,
    **dict.fromkeys(BACKENDS, probe_hooks),
}


def answer(what: str) -> ProbeReply:
    """The reply of a probe. Never raises for what a library does."""
    try:
        return ProbeReply(facts=PROBES[what](what))
    except HookPointMissing as error:
        return ProbeReply("missing", str(error))
    except Exception as error:
        return ProbeReply("broken", _line(error))


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


if __name__ == "__main__":
    atomic.write_bytes(Path(sys.argv[2]), msgspec.json.encode(answer(sys.argv[1])))
