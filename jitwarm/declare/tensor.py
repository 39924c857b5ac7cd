"""A stand-in for a tensor: everything a compiler looks at, and no storage."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jitwarm import keys
from jitwarm.declare.spelling import nearest
from jitwarm.errors import DeclarationError

# The names of torch's dtypes that Triton has a type for. Written down, because a declaration shall
# not import either; a test holds it against both.
_DTYPES = (
    *("bool", "int", "int1", "int8", "int16", "int32", "int64"),
    *("uint1", "uint8", "uint16", "uint32", "uint64"),
    *("half", "float", "double", "bfloat16", "float16", "float32", "float64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a launch case says of a tensor argument.

    `dtype` is a torch or Triton dtype, or the name of a torch dtype (`"int32"`); `aligned` says
    whether the data pointer is divisible by 16 bytes; `shape` and `strides` are in elements
    (row-major compact by default).
    `init` is a fill value or a callable, used only where a real tensor must be made (autotuning).
    `ptr_range_bytes` is the size of the storage behind the run-time tensor in bytes; ROCm
    specialises on "at most 2 GB", CUDA ignores it.
    """

    dtype: Any
    aligned: bool = True
    shape: tuple[int, ...] = (1,)
    strides: tuple[int, ...] | None = None
    init: float | Callable[[Any], Any] = 0
    ptr_range_bytes: int = 0

    def __post_init__(self) -> None:
        """Take lists and `torch.Size` as shapes; refuse names that are no dtype and strides that do
        not fit the shape.
        """
        if isinstance(self.dtype, str) and (name := dtype_name(self.dtype)) not in _DTYPES:
            advice = nearest(name, _DTYPES) or f"; Triton takes {', '.join(_DTYPES)}"
            raise DeclarationError(f"TensorSpec: unknown dtype {self.dtype!r}{advice}")
        object.__setattr__(self, "shape", tuple(self.shape))
        if self.strides is not None:
            object.__setattr__(self, "strides", tuple(self.strides))
            if len(self.strides) != len(self.shape):
                raise DeclarationError(
                    f"TensorSpec: {len(self.strides)} strides {self.strides} for a shape of "
                    f"{len(self.shape)} dimensions {self.shape}"
                )

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def device(self) -> Any:
        """The device of this process's tensors, as `tensor.device` would say."""
        from jitwarm.device import torch_device

        return torch_device()

    def data_ptr(self) -> int:
        """0 for an aligned pointer, 1 for one that is not.

        An empty tensor is always 0: torch gives every empty tensor the null pointer, so its class
        is "aligned" at any offset.
        """
        return 0 if self.aligned or self.numel() == 0 else 1

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or one extent of it."""
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """The strides in elements, or one of them."""
        strides = self.strides if self.strides is not None else _compact(self.shape)
        return strides if dim is None else strides[dim]

    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps.

        As in torch, a dimension of one element may have any stride, an empty tensor any strides.
        """
        triples = zip(self.shape, self.stride(), _compact(self.shape), strict=True)
        return self.numel() == 0 or all(
            extent == 1 or stride == compact for extent, stride, compact in triples
        )

    def ptr_range(self) -> int:
        """Byte size of the storage (ROCm)."""
        return self.ptr_range_bytes

    def canonical(self) -> str:
        """Text of the parts that a compiler can see; `init` is not one of them."""
        parts = [dtype_name(self.dtype), "aligned" if self.aligned else "unaligned"]
        if self.shape != (1,):
            parts.append(f"shape={keys.canonical(self.shape)}")
        if self.stride() != _compact(self.shape):
            parts.append(f"strides={keys.canonical(self.strides)}")
        if self.ptr_range_bytes:
            parts.append(f"ptr_range={self.ptr_range_bytes}")
        return f"tensor({', '.join(parts)})"


def dtype_name(dtype: Any) -> str:
    """The bare name of a dtype: `torch.float32` and `"float32"` both give `float32`."""
    return str(dtype).rpartition(".")[2]


def _compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))
