"""UnpackSeq: take the padding out of a block of requests, the inverse of PackSeq.

    start = exclusive cumulative sum of lengths
    out[start_b + t, ...] = packed[b, t, ...]   for t < lengths[b]

Shapes: packed [B, max_len, ...] (3 or more dimensions), lengths [B], out [sum(lengths), ...].
B = 0 and lengths of 0 are legal.
Dtypes: packed and out the same, any that Triton loads; values are copied. lengths int32 (other
integers are converted).
Limits: sum(lengths) below 2**31; max_len and the row size D (product of the trailing extents) at
most 64 * 65535, by the launch grid. Offsets are 64-bit: tensors may exceed 2**31 elements.

Callers and reachable classes
-----------------------------
A sparse indexer unpacks the top-k ids of the decode rows that it had packed.

    packed_ptr   the fresh top-k output [B, max_len, topk], contiguous: int32, aligned
    lengths_ptr  decode_lens_buffer[:num_decodes], the start of a larger buffer: int32, aligned
    out_ptr      allocated by each call, or the start of the step's index buffer: int32, aligned
    n_rows, row_size, max_len
                 anything: i32, unspecialised

Not reached, hence not declared: other dtypes than int32, and pointers that are no multiple of 16
bytes. They are computed correctly and compile on first use.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (Triton reads the annotations of a kernel's arguments: only constexprs may have one.)

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.declare import TensorSpec, declare, launch
from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.pack_seq import (
    BLOCK_D,
    BLOCK_T,
    MAX_EXTENT,
    OPTIONS,
    host_lengths,
    rows_before,
)

_CONSTANTS: dict[str, Any] = {"BLOCK_T": BLOCK_T, "BLOCK_D": BLOCK_D, **OPTIONS}


@triton.jit(do_not_specialize=["n_rows", "row_size", "max_len"])
def _unpack_seq(
    packed_ptr,
    lengths_ptr,
    out_ptr,
    n_rows,
    row_size,
    max_len,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    seq = tl.program_id(0)
    t = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    row = rows_before(lengths_ptr, seq) + t
    # The last bound holds anyway for lengths that fit out; wrong ones must not write past its end.
    filled = (t < tl.load(lengths_ptr + seq)) & (t < max_len) & (row < n_rows)
    mask = filled[:, None] & (d < row_size)[None, :]
    packed_row = seq.to(tl.int64) * max_len + t
    values = tl.load(packed_ptr + packed_row[:, None] * row_size + d[None, :], mask=mask)
    tl.store(out_ptr + row[:, None] * row_size + d[None, :], values, mask=mask)


@declare(_unpack_seq)
def UnpackSeq() -> Iterator[Any]:
    """The one key of a model: top-k ids, int32."""
    yield launch(
        packed_ptr=TensorSpec("int32"),
        lengths_ptr=TensorSpec("int32"),
        out_ptr=TensorSpec("int32"),
        n_rows=2,
        row_size=2,
        max_len=2,
        **_CONSTANTS,
    )


def unpack_seq(
    packed: torch.Tensor,
    lengths: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    total: int | None = None,
) -> torch.Tensor:
    """Unpack `packed` into rows [total, *packed.shape[2:]] (`out`, or a new tensor); return them.

    `total` is sum(lengths), by default the rows of `out`, else the lengths are fetched from the
    device and checked. A caller that gives `total` or `out` waits for nothing: rows that a length
    claims beyond the block are then left as they were, and rows beyond `out` are dropped.
    A non-contiguous `packed` is copied first.
    Raises `BindingError` (a ValueError) for anything that does not fit.
    """
    if packed.dim() < 3 or lengths.dim() != 1 or lengths.shape[0] != packed.shape[0]:
        raise BindingError(
            "UnpackSeq: needs packed [B, max_len, ...] of 3 or more dimensions and lengths [B], "
            f"not {list(packed.shape)} and {list(lengths.shape)}"
        )
    n_seqs, max_len, *tail = packed.shape
    if total is None:
        if out is not None and out.dim() > 0:
            total = out.shape[0]
        else:
            known = host_lengths("UnpackSeq", lengths)
            if max(known, default=0) > max_len:
                raise BindingError(
                    f"UnpackSeq: a request has {max(known)} rows, "
                    f"but the block holds {max_len} of each"
                )
            total = sum(known)
    rows = (total, *tail)
    if out is None:
        out = torch.empty(rows, dtype=packed.dtype, device=packed.device)
    elif out.shape != rows or out.dtype != packed.dtype or not out.is_contiguous():
        raise BindingError(
            f"UnpackSeq: out must be a contiguous {list(rows)} {packed.dtype}, not a "
            f"{'' if out.is_contiguous() else 'strided '}{list(out.shape)} {out.dtype}"
        )
    row_size = math.prod(tail)
    if max_len > MAX_EXTENT or row_size > MAX_EXTENT:
        raise BindingError(
            f"UnpackSeq: max_len {max_len} and row size {row_size} must not exceed {MAX_EXTENT}"
        )
    if n_seqs and max_len and row_size and total:
        counts = lengths.to(torch.int32).contiguous()  # no copies where there is nothing to do
        grid = (n_seqs, triton.cdiv(max_len, BLOCK_T), triton.cdiv(row_size, BLOCK_D))
        _unpack_seq[grid](packed.contiguous(), counts, out, total, row_size, max_len, **_CONSTANTS)
    return out


def unpack_seq_launch(packed: Any, lengths: Any, out: Any) -> dict[str, Any] | None:
    """The launch that `unpack_seq` makes of contiguous tensors or stand-ins, lengths int32; None
    where it makes none.
    """
    n_seqs, max_len, *tail = packed.shape
    if not (n_seqs and max_len and math.prod(tail) and out.shape[0]):
        return None
    return {
        "packed_ptr": packed,
        "lengths_ptr": lengths,
        "out_ptr": out,
        "n_rows": out.shape[0],
        "row_size": math.prod(tail),
        "max_len": max_len,
        **_CONSTANTS,
    }
