"""Which versions and settings decide what is compiled here: what every result carries."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "jitwarm",
    "torch",
    "triton",
    "numpy",
    "msgspec",
    "nvidia-cutlass-dsl",
    "apache-tvm-ffi",
    "flash-attn-4",
    "quack-kernels",
)
# Environment variables that change what Triton compiles without being part of a launch.
SETTINGS = (
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_DISABLE_LINE_INFO",
    "TRITON_DEBUG",
    "PTXAS_OPTIONS",
    "TRITON_OVERRIDE_ARCH",
    "CUTE_DSL_ARCH",
    "CUTE_DSL_LINEINFO",
    "CUTE_DSL_DEBUG",
    "CUTE_DSL_COMPILER_OPT",
    "CUTE_DSL_COMPILER_BACKEND",
    "CUTE_DSL_ENABLE_ASSERTIONS",
    "FLASH_ATTENTION_ARCH",
    "FLASH_ATTENTION_NUM_SMS",
    "FA_LOG_LEVEL",
)


def versions(cuda: str) -> dict[str, str]:
    """Python, the CUDA that torch was built for, `PACKAGES`, and `SETTINGS` that are set."""
    found = {"python": platform.python_version(), "cuda": cuda}
    found |= {package: installed(package) or "not installed" for package in PACKAGES}
    return found | {name: os.environ[name] for name in SETTINGS if name in os.environ}


def installed(package: str) -> str:
    """The version of a distribution; empty if it is not installed, or has no name."""
    try:
        return version(package) if package else ""
    except PackageNotFoundError:
        return ""
