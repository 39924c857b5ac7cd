"""PackSeq: put the rows of a ragged batch into one padded block per request.

    start = exclusive cumulative sum of lengths
    out[b, t, ...] = x[start_b + t, ...]   if t < lengths[b] else pad_value

Shapes: x [N, ...] (2 or more dimensions), lengths [B], out [B, max_len, ...]. B = 0 and lengths
of 0 are legal.
Dtypes: x and out the same, any real one but bool; lengths int32 (other integers are converted).
Padding: uint8 stores an int of 0..255 exactly. Any other dtype converts the number through
float32. 8-bit floats saturate on some hardware, so -inf may become the lowest finite number: do
not read their padding. float8_e4m3fn needs compute capability 8.9.
Limits: N below 2**31; max_len and the row size D (product of the trailing extents) at most
64 * 65535, by the launch grid. Offsets are 64-bit: tensors may exceed 2**31 elements.

N, D and max_len change from batch to batch and are unspecialised. As constexprs, each new batch
shape would be a compile.

Callers and reachable classes
-----------------------------
A sparse indexer packs the decode queries of a step. Decodes come first in the batch.

    x_ptr        the first rows of a fresh, contiguous projection output:
                 one dtype by the configuration, aligned
    lengths_ptr  decode_lens_buffer[:num_decodes], the start of a larger buffer: int32, aligned
    out_ptr      allocated by each call: the dtype of x, aligned
    n_rows, row_size, max_len
                 anything: i32, unspecialised
    PAD, PAD_IS_UINT8
                 one pair by the configuration

Not reached, hence not declared: lengths[num_decodes:] or x[1:] at an offset that is no multiple
of 16 bytes. They are computed correctly and compile on first use.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (Triton reads the annotations of a kernel's arguments: only constexprs may have one.)

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.declare import TensorSpec, declare, launch
from jitwarm.errors import BindingError

BLOCK_T = 64  # tile: rows of one request
BLOCK_D = 64  # tile: elements of a row
MAX_EXTENT = 64 * 65535  # a grid has at most 65535 tiles in its second and third dimension
OPTIONS = {"num_warps": 4, "num_stages": 2}

_INT_DTYPES = (torch.int8, torch.int16, torch.int32, torch.int64)
_FLOAT32_INTEGERS = 2**24  # up to here float32 holds every integer


@triton.jit
def rows_before(lengths_ptr, seq):
    """Sum of lengths[:seq], int64: the first row of request `seq`."""
    lanes = tl.arange(0, 128)
    partial = tl.zeros((128,), tl.int64)
    first = 0
    # A range with a run-time bound fails in Triton 3.6's interpreter with numpy 2.4.
    while first < seq:
        index = first + lanes
        partial += tl.load(lengths_ptr + index, mask=index < seq, other=0).to(tl.int64)
        first += 128
    return tl.sum(partial)


@triton.jit(do_not_specialize=["n_rows", "row_size", "max_len"])
def _pack_seq(
    x_ptr,
    lengths_ptr,
    out_ptr,
    n_rows,
    row_size,
    max_len,
    PAD: tl.constexpr,
    PAD_IS_UINT8: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    seq = tl.program_id(0)
    t = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    row = rows_before(lengths_ptr, seq) + t
    # The second bound holds anyway for lengths that fit x; wrong ones must not read past its end.
    filled = (t < tl.load(lengths_ptr + seq)) & (row < n_rows)
    in_row = (d < row_size)[None, :]

    if PAD_IS_UINT8:
        pad = tl.full((BLOCK_T, BLOCK_D), PAD, tl.uint8)
    else:
        pad = tl.full((BLOCK_T, BLOCK_D), PAD, tl.float32).to(out_ptr.dtype.element_ty)
    values = tl.load(x_ptr + row[:, None] * row_size + d[None, :], mask=filled[:, None] & in_row)
    out_row = seq.to(tl.int64) * max_len + t
    tl.store(
        out_ptr + out_row[:, None] * row_size + d[None, :],
        tl.where(filled[:, None], values, pad),
        mask=(t < max_len)[:, None] & in_row,
    )


@functools.lru_cache(maxsize=64, typed=True)
def _constants(dtype: Any, pad_value: Any) -> dict[str, Any]:
    """Compile-time arguments and options, one source for the declaration and for `pack_seq`.

    Raises `BindingError` for a pad that the dtype cannot hold exactly.
    """
    is_uint8 = dtype == torch.uint8
    if is_uint8:
        if type(pad_value) is not int or not 0 <= pad_value <= 255:
            raise BindingError(
                "PackSeq: uint8 rows are padded with a byte: "
                f"pass an int in 0..255 as pad_value, not {pad_value!r}"
            )
        pad: Any = pad_value
    else:
        # Adding 0.0 turns -0.0 into 0.0: Triton takes the two for one constexpr and would serve
        # whichever was compiled first.
        pad = float(pad_value) + 0.0
        if dtype in _INT_DTYPES:
            bound = min(_FLOAT32_INTEGERS, torch.iinfo(dtype).max)
            if not (math.isfinite(pad) and pad.is_integer() and -bound <= pad <= bound):
                raise BindingError(
                    f"PackSeq: {dtype} rows need a whole number within +-{bound} as pad_value, "
                    f"not {pad_value!r}"
                )
        elif not dtype.is_floating_point:
            raise BindingError(
                f"PackSeq: cannot pad {dtype}: pass a view of it as uint8 or another real dtype"
            )
    return {
        "PAD": pad,
        "PAD_IS_UINT8": is_uint8,
        "BLOCK_T": BLOCK_T,
        "BLOCK_D": BLOCK_D,
        **OPTIONS,
    }


@declare(_pack_seq)
def PackSeq(*, dtype: Any, pad_value: Any) -> Iterator[Any]:
    """The one key of a model, by what its launches pass: the rows' dtype (or its name), the pad."""
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    yield launch(
        x_ptr=TensorSpec(dtype),
        lengths_ptr=TensorSpec("int32"),
        out_ptr=TensorSpec(dtype),
        n_rows=2,
        row_size=2,
        max_len=2,
        **_constants(dtype, pad_value),
    )


def host_lengths(kernel: str, lengths: torch.Tensor) -> list[int]:
    """The lengths as Python numbers; waits for the device.

    Raises `BindingError` for a negative one. `kernel` is the name that the message starts with.
    """
    values: list[int] = lengths.tolist()
    if values and min(values) < 0:
        raise BindingError(
            f"{kernel}: lengths must be 0 or more: "
            f"lengths[{values.index(min(values))}] is {min(values)}"
        )
    return values


def pack_seq(
    x: torch.Tensor,
    lengths: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    max_len: int | None = None,
    total: int | None = None,
    pad_value: float = -math.inf,
) -> torch.Tensor:
    """Pack the rows of `x` into [B, max_len, *x.shape[1:]] (`out`, or a new tensor); return it.

    `max_len` is by default that of `out`, else the longest request, for which the lengths are
    fetched from the device and checked. A caller that gives `max_len` or `out` waits for nothing:
    requests longer than the block are then cut, and lengths beyond the rows of `x` give padding.
    `total` is sum(lengths) where the caller knows it; it is checked against `x`.
    A non-contiguous `x` is copied first.
    Raises `BindingError` (a ValueError) for anything that does not fit.
    """
    if x.dim() < 2 or lengths.dim() != 1:
        raise BindingError(
            "PackSeq: needs x [N, ...] of 2 or more dimensions and lengths [B], "
            f"not {list(x.shape)} and {list(lengths.shape)}"
        )
    constants = _constants(x.dtype, pad_value)
    n_seqs, (n_rows, *tail) = lengths.shape[0], x.shape
    if max_len is None:
        if out is not None and out.dim() > 1:
            max_len = out.shape[1]
        else:
            known = host_lengths("PackSeq", lengths)
            max_len, total = max(known, default=0), sum(known)
    if total is not None and total > n_rows:
        raise BindingError(
            f"PackSeq: lengths add up to {total} rows, but x has {n_rows}: "
            "pass the lengths of the rows in x"
        )
    block = (n_seqs, max_len, *tail)
    if out is None:
        out = torch.empty(block, dtype=x.dtype, device=x.device)
    elif out.shape != block or out.dtype != x.dtype or not out.is_contiguous():
        raise BindingError(
            f"PackSeq: out must be a contiguous {list(block)} {x.dtype}, not a "
            f"{'' if out.is_contiguous() else 'strided '}{list(out.shape)} {out.dtype}"
        )
    row_size = math.prod(tail)
    if max_len > MAX_EXTENT or row_size > MAX_EXTENT:
        raise BindingError(
            f"PackSeq: max_len {max_len} and row size {row_size} must not exceed {MAX_EXTENT}"
        )
    if n_seqs and max_len and row_size:
        counts = lengths.to(torch.int32).contiguous()  # no copies where there is nothing to do
        grid = (n_seqs, triton.cdiv(max_len, BLOCK_T), triton.cdiv(row_size, BLOCK_D))
        _pack_seq[grid](x.contiguous(), counts, out, n_rows, row_size, max_len, **constants)
    return out


def pack_seq_launch(
    x: Any, lengths: Any, out: Any, *, pad_value: float = -math.inf
) -> dict[str, Any] | None:
    """The launch that `pack_seq` makes of contiguous tensors or stand-ins, lengths int32; None
    where it makes none.
    """
    n_seqs, max_len = out.shape[:2]
    row_size = math.prod(x.shape[1:])
    if not (n_seqs and max_len and row_size):
        return None
    return {
        "x_ptr": x,
        "lengths_ptr": lengths,
        "out_ptr": out,
        "n_rows": x.shape[0],
        "row_size": row_size,
        "max_len": max_len,
        **_constants(x.dtype, pad_value),
    }
