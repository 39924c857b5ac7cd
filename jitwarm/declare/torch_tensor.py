"""From stand-ins to torch's tensors and back: with torch's dtype, fake, real, and without storage.

torch is imported by the functions here, which are called where a launch is evaluated, and not where
one is declared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jitwarm.declare.tensor import TensorSpec, dtype_name

_GUARD_BYTES, _PATTERN = 1 << 20, 0xA5

# Names of Triton's dtypes where torch has another one.
_TRITON_NAMES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5": "float8_e5m2",
    "fp8e5b16": "float8_e5m2fnuz",
    "int1": "bool",
    "uint1": "bool",
}


def torch_dtype(dtype: Any) -> Any:
    """The torch dtype of a dtype, or of the name of one."""
    import torch

    name = dtype_name(dtype)
    return getattr(torch, _TRITON_NAMES.get(name, name))


def with_torch_dtype(value: Any) -> Any:
    """A stand-in whose dtype compares with torch's; any other value unchanged.

    A stand-in may be declared with the name of a dtype, and `x.dtype == torch.float32` must decide
    as it does for a tensor.
    """
    if not isinstance(value, TensorSpec):
        return value
    dtype = torch_dtype(value.dtype)
    return value if dtype is value.dtype else replace(value, dtype=dtype)


def fake_tensor(spec: TensorSpec) -> Any:
    """A tensor without storage that torch's operators take. Made inside a `FakeTensorMode`."""
    return _laid_out(spec, 0)[1]


@dataclass(frozen=True, slots=True)
class RealTensor:
    """A tensor with a stand-in's dtype, shape, strides and alignment, and the guard behind it."""

    tensor: Any
    guard: Any

    def was_overrun(self) -> bool:
        """Whether anybody has written behind the last element."""
        return bool((self.guard != _PATTERN).any())


def real_tensor(spec: TensorSpec) -> RealTensor:
    """A tensor on the process's device, with a guard of 1 MiB behind it.

    A number in `init` fills it. A callable is called with it: what it returns, if that is another
    tensor, is copied into it.
    """
    import torch

    itemsize = torch.empty(0, dtype=torch_dtype(spec.dtype)).element_size()
    storage, tensor = _laid_out(spec, _GUARD_BYTES // itemsize)
    own = storage.numel() - _GUARD_BYTES // itemsize
    guard = storage[own:].view(torch.uint8).fill_(_PATTERN)
    if not callable(spec.init):
        storage[:own].fill_(spec.init)  # not the view: strides of 0 cannot be written through
        return RealTensor(tensor, guard)
    made = spec.init(tensor)
    if isinstance(made, torch.Tensor) and made is not tensor:
        tensor.copy_(made)
    return RealTensor(tensor, guard)


def without_storage(value: Any) -> Any:
    """A tensor, real or fake, as a stand-in; everything else unchanged."""
    if (
        isinstance(value, TensorSpec)
        or not hasattr(value, "data_ptr")
        or not hasattr(value, "dtype")
    ):
        return value
    # A fake tensor has no address and warns when asked: its storage counts as aligned, as a fresh
    # allocation is.
    fake = type(value).__name__ == "FakeTensor"
    address = value.storage_offset() * value.element_size() if fake else value.data_ptr()
    aligned = value.numel() == 0 or address % 16 == 0
    compact = TensorSpec(value.dtype, aligned, tuple(value.shape))
    strides = tuple(value.stride())
    return (
        compact
        if compact.stride() == strides
        else TensorSpec(value.dtype, aligned, tuple(value.shape), strides)
    )


def _laid_out(spec: TensorSpec, more: int) -> tuple[Any, Any]:
    """Storage, and the tensor in it: one element from its start if it is not aligned, and `more`
    elements before its end.
    """
    import torch

    strides = spec.stride()
    extent = 0
    if spec.numel():
        extent = 1 + sum((n - 1) * s for n, s in zip(spec.shape, strides, strict=True))
    offset = 0 if spec.aligned else 1
    storage = torch.empty(extent + offset + more, dtype=torch_dtype(spec.dtype), device=spec.device)
    return storage, storage.as_strided(spec.shape, strides, offset)
