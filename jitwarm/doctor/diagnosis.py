"""What `jitwarm doctor` found, and what follows from it.

`problems` are what keeps jitwarm from working here, or from seeing what it should; `notes` are what
is worth a word besides.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from jitwarm import env
from jitwarm.doctor.cache_places import CacheFolder
from jitwarm.errors import UsageError
from jitwarm.observe.blind_spots import BlindSpot

SCHEMA = 1
# Without these nothing of jitwarm works; the others are extras.
REQUIRED = ("torch", "triton", "numpy", "msgspec", "tabulate")
# Less than this, and a compile of a model's kernels may not fit any more.
LITTLE_SPACE = 1 << 30
# The library that writes into a cache root, where it is one that can be asked for.
WRITES = {
    "TRITON_HOME": "triton",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "torch",
    "TORCH_EXTENSIONS_DIR": "torch",
    "CUTE_DSL_CACHE_DIR": "nvidia-cutlass-dsl",
    "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": "flash-attn-4",
    "QUACK_CACHE_DIR": "quack-kernels",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer-python",
    "TILELANG_CACHE_DIR": "tilelang",
    "DG_JIT_CACHE_DIR": "deep-gemm",
}


class Installation(msgspec.Struct, frozen=True):
    """Which jitwarm this is. `commit` is empty unless it lies in a checkout; `changed`: tracked
    files differ from it.
    """

    version: str
    path: str
    commit: str = ""
    commit_date: str = ""
    changed: bool = False


class Gpu(msgspec.Struct, frozen=True):
    """A GPU as the driver's management tool tells it; memory in MiB as that prints it."""

    name: str
    arch: str
    driver: str
    memory: str


class Torch(msgspec.Struct, frozen=True):
    """The CUDA that torch is built for (empty: none), whether it can use a GPU, what is wrong."""

    cuda: str
    usable: bool
    problem: str


class Hooks(msgspec.Struct, frozen=True):
    """A compiler that is watched. `state` is `ok`, `missing` (a hook point), `broken` (the import
    fails) or `not installed`; `problem` says why.
    """

    backend: str
    library: str
    version: str
    state: str
    problem: str
    sees: str
    does_not_see: str


class Stub(msgspec.Struct, frozen=True):
    """The stub device: for which architectures a kernel was compiled here, and what is wrong."""

    arches: tuple[str, ...]
    compiled: tuple[str, ...]
    problems: tuple[str, ...]


class Variable(msgspec.Struct, frozen=True):
    """An environment variable that is set. `effect` is `jitwarm` (read by it), `compiles` (changes
    what is compiled, and not the launch) or empty.
    """

    name: str
    value: str
    effect: str


class Diagnosis(msgspec.Struct, frozen=True):
    """Everything that `jitwarm doctor` knows. `c_compiler` is empty where there is none."""

    schema: int
    jitwarm: Installation
    python: str
    executable: str
    platform: str
    cores: int
    c_compiler: str
    gpus: tuple[Gpu, ...]
    gpu_problem: str
    torch: Torch
    packages: dict[str, str]
    models: tuple[str, ...]
    hooks: tuple[Hooks, ...]
    stub: Stub
    caches: tuple[CacheFolder, ...]
    variables: tuple[Variable, ...]
    unseen: tuple[BlindSpot, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def problems(found: Diagnosis) -> Iterator[str]:
    """What keeps jitwarm from working here, or from seeing what it should."""
    for name in REQUIRED:
        if not found.packages[name]:
            yield f"{name} is not installed: pip install jitwarm"
    if found.torch.problem and found.packages["torch"]:
        yield f"torch: {found.torch.problem}"
    for hooks in found.hooks:
        if hooks.state == "missing":
            yield hooks.problem
        elif hooks.state == "broken":
            yield f"{hooks.library} {hooks.version} cannot be imported: {hooks.problem}"
    if found.packages["torch"] and found.packages["triton"]:
        yield from (f"stub device: {problem}" for problem in found.stub.problems)
    if found.gpu_problem:
        # Where others are listed, runs take the first of them.
        end = "" if found.gpus else ": runs would fail, or take the stub device"
        yield f"{found.gpu_problem}{end}"
    yield from _gpu_problems(found)
    for folder in found.caches:
        if not folder.writable and found.packages.get(WRITES.get(folder.variable, "")):
            yield f"{folder.variable}: nothing can be written to {folder.path}"
    try:
        env.strict(), env.jobs()
    except UsageError as error:
        yield str(error)


def _gpu_problems(found: Diagnosis) -> Iterator[str]:
    if not found.gpus:
        return
    if not found.torch.cuda and not found.torch.problem:
        yield (
            "torch is built without CUDA and cannot use the GPU here: install a torch for CUDA, or "
            "run with --device stub"
        )
    elif not found.torch.usable and not found.torch.problem:
        yield (
            f"torch for CUDA {found.torch.cuda} cannot use the GPU here (driver "
            f"{found.gpus[0].driver}, CUDA_VISIBLE_DEVICES): run with --device stub, or mend that"
        )
    if not found.c_compiler:
        yield (
            "no C compiler, and Triton builds its launchers with the one that CC names, else gcc "
            "or clang: install gcc, or mend CC"
        )


def notes(found: Diagnosis) -> Iterator[str]:
    """What is worth a word, and keeps nothing from working."""
    for folder in found.caches:
        used = folder.exists or folder.is_set
        if folder.shared and used:
            yield (
                f"{folder.variable}: {folder.path} is on {folder.filesystem}, which machines "
                "share: starts are slower, and one machine's files serve the others"
            )
        if folder.free_bytes is not None and folder.free_bytes < LITTLE_SPACE and used:
            yield f"{folder.variable}: {folder.free_bytes >> 20} MiB are left for {folder.path}"
    for one in found.variables:
        bench = one.name.startswith("JITWARM_BENCH_")  # of the asv suite
        if one.name.startswith("JITWARM_") and not bench and one.effect != "jitwarm":
            names = ", ".join(env.NAMES)
            yield f"{one.name} is set, and jitwarm reads no such variable: it reads {names}"
    if len({gpu.arch for gpu in found.gpus}) > 1:
        yield "GPUs of several architectures: the first is taken"
