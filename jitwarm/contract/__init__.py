"""The contract class: kernels that say which of their keys must be ready at start-up."""

from jitwarm.contract.expander import counting_points
from jitwarm.contract.kernel import JitKernel, OpaqueRecipe
from jitwarm.contract.launcher import LaunchSpec, kernel_launcher
from jitwarm.contract.native_inputs import triton_warmup_inputs
from jitwarm.contract.pointers import TritonPointerInputVariant
from jitwarm.contract.scalars import triton_scalar_specialization_rep
from jitwarm.contract.triton import TritonJitKernel, TritonWarmupTensor
from jitwarm.declare.domains import RowGroup, WarmupChoices, WarmupIntRange, zip_inputs
from jitwarm.declare.nokeys import NoKeys

__all__ = [
    "JitKernel",
    "LaunchSpec",
    "NoKeys",
    "OpaqueRecipe",
    "RowGroup",
    "TritonJitKernel",
    "TritonPointerInputVariant",
    "TritonWarmupTensor",
    "WarmupChoices",
    "WarmupIntRange",
    "counting_points",
    "kernel_launcher",
    "triton_scalar_specialization_rep",
    "triton_warmup_inputs",
    "zip_inputs",
]
