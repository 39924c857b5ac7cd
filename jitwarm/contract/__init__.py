"""The contract class: kernels that say which of their keys must be ready at start-up."""

from typing import Any

from jitwarm.contract.cases import _when
from jitwarm.contract.compile_units import CuTeDSLCompileUnit, register_cutedsl_warmup_provider
from jitwarm.contract.cutedsl import (
    CuTeDSLJitKernel,
    compile_cutedsl,
    cutedsl_fake_stream,
    cutedsl_kernel_launcher,
)
from jitwarm.contract.dispatcher import triton_kernel_dispatcher_with_warmup
from jitwarm.contract.expander import counting_points
from jitwarm.contract.kernel import JitKernel, OpaqueRecipe
from jitwarm.contract.launcher import LaunchSpec, kernel_launcher
from jitwarm.contract.native_inputs import triton_warmup_inputs
from jitwarm.contract.pointers import TritonPointerInputVariant
from jitwarm.contract.scalars import triton_scalar_specialization_rep
from jitwarm.contract.triton import TritonJitKernel, TritonWarmupTensor
from jitwarm.contract.warmed_kernel import TritonCompileKey
from jitwarm.declare.domains import RowGroup, WarmupChoices, WarmupIntRange, zip_inputs
from jitwarm.declare.nokeys import NoKeys
from jitwarm.registry import JitWarmupRegistry

__all__ = [
    "CuTeDSLCompileUnit",
    "CuTeDSLJitKernel",
    "JitKernel",
    "JitWarmupRegistry",
    "LaunchSpec",
    "NoKeys",
    "OpaqueRecipe",
    "RowGroup",
    "TritonCompileKey",
    "TritonJitKernel",
    "TritonPointerInputVariant",
    "TritonWarmupTensor",
    "WarmupChoices",
    "WarmupIntRange",
    "_when",
    "compile_cutedsl",
    "counting_points",
    "cutedsl_fake_stream",
    "cutedsl_kernel_launcher",
    "kernel_launcher",
    "kernel_warmup",
    "register_cutedsl_warmup_provider",
    "triton_kernel_dispatcher_with_warmup",
    "triton_scalar_specialization_rep",
    "triton_warmup_inputs",
    "zip_inputs",
]


def __getattr__(name: str) -> Any:
    """`kernel_warmup`, whose module needs this package."""
    if name == "kernel_warmup":
        from jitwarm.startup import kernel_warmup

        return kernel_warmup
    raise AttributeError(f"module 'jitwarm.contract' has no attribute {name!r}")
