"""Every cache folder that a kernel compiler may read or write: redirect them, count them.

Cold means cold: a measured process gets all of them below one empty folder, and they are counted
before and after it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

# Environment variable -> what keeps its cache there. The values of all of them are folders.
ROOTS: Mapping[str, str] = {
    "TRITON_HOME": "Triton's home: default parent of its caches and dumps",
    "TRITON_CACHE_DIR": "Triton: binaries, launchers, driver stubs",
    "TORCHINDUCTOR_CACHE_DIR": "TorchInductor: generated code and autotuning",
    "TORCH_EXTENSIONS_DIR": "torch: extensions built at run time",
    "CUDA_CACHE_PATH": "CUDA driver: binaries compiled from PTX",
    "CUTE_DSL_CACHE_DIR": "CuTe DSL: compiled modules",
    "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": "flash-attention 4: compiled kernels",
    "QUACK_CACHE_DIR": "quack: compiled kernels",
    "FLASHINFER_WORKSPACE_BASE": "FlashInfer: generated and compiled modules",
    "TILELANG_CACHE_DIR": "TileLang: compiled kernels",
    "DG_JIT_CACHE_DIR": "DeepGEMM: compiled kernels",
}


class CacheCount(msgspec.Struct, frozen=True):
    """Files in a cache folder before and after a run."""

    before: int
    after: int


def isolated(root: Path) -> dict[str, str]:
    """Environment variables that put every cache below `root` (created)."""
    variables = {}
    for name in ROOTS:
        folder = root / name.lower()
        folder.mkdir(parents=True, exist_ok=True)
        variables[name] = str(folder)
    return variables


def count() -> dict[str, int]:
    """The number of files in each cache folder that this process's environment names."""
    return {name: _files(Path(os.environ[name])) for name in ROOTS if os.environ.get(name)}


def _files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))
