"""Stand-ins for what a step passes: slices of buffers whose start 16 bytes divide."""

from __future__ import annotations

import torch

from jitwarm.declare import TensorSpec


def from_start(dtype: torch.dtype, *shape: int) -> TensorSpec:
    """A whole buffer, a slice from its start, or a fresh tensor: compact, of this shape."""
    return TensorSpec(dtype, shape=shape)


def from_offset(dtype: torch.dtype, offset: int, *shape: int) -> TensorSpec:
    """A slice that starts `offset` elements behind the start of a buffer."""
    return TensorSpec(dtype, aligned=offset * dtype.itemsize % 16 == 0, shape=shape)
