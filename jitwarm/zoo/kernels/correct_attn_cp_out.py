"""CorrectAttnCPOut: weighs one rank's attention output by its share of the softmax over all ranks' shards of the context.

N ranks each attended to their own shard; lses [N, B, H] are the gathered log-sum-exps, i is this
rank. With base e (or 2):

    L[n]      = lses[n, b, h], and -inf where that is NaN or +inf
    lse       = m + log(sum_n exp(L[n] - m)),   m = max_n L[n], or 0 if that is -inf
    f         = exp(lses[i, b, h] - lse), and 0 where the difference is NaN or +inf
    out[b, h] = outputs[b, h] * f, exactly 0 where f is 0;   vlse[b, h] = lse

The outputs of all ranks then add up to the attention over the whole context. A row without any
context has lse = -inf.

Shapes: outputs and the result [B, H, D], lses float32 [N, B, H], vlse float32 [B, H]; D and N
powers of two. vlse is addressed with the last two strides of lses, so it has to be allocated with
them. Any strides work. Math in float32, one rounding to the output dtype. The result may be
written over `outputs`, which is the default. Offsets are 64-bit.

Callers and reachable classes
-----------------------------
The DCP manager of an MLA layer, once a layer, after the all-gather; a cross-rank sum follows. B
is the number of decode tokens, H the heads of this rank times W (the query was gathered over the
group).

* outputs_ptr, new_output_ptr: fresh output of the attention kernel, contiguous; the same tensor
  twice. Classes: the output dtype; aligned.
* lses_ptr: fresh result of the all-gather, float32, contiguous. Classes: aligned.
* vlse_ptr: fresh, with the strides of lses. Classes: aligned.
* outputs strides: (H*D, D, 1). Classes: (16, 16, 1) where D is a multiple of 16.
* lses strides: (B*H, H, 1). Classes: H a multiple of 16: (16, 16, 1); else the first is 16, 2 or
  1 by B*H.
* lse_idx: the DCP rank. Classes: one class a process: rank 0 and multiples of 16 are 16, rank 1
  is 1, any other is 2.
* HEAD_DIM, N_ROUNDED, IS_BASE_E: fixed by the model and the attention backend. Classes: one set.

The declared space holds the lse_idx of every rank, so a process reaches one third to one half of
its keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _correct_attn_cp_out(
    outputs_ptr,
    new_output_ptr,
    lses_ptr,
    vlse_ptr,
    outputs_stride0,
    outputs_stride1,
    outputs_stride2,
    lses_stride0,
    lses_stride1,
    lses_stride2,
    lse_idx,
    HEAD_DIM: tl.constexpr,
    N_ROUNDED: tl.constexpr,
    IS_BASE_E: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    inf = float("inf")

    row = token * lses_stride1 + head * lses_stride2
    lses = tl.load(lses_ptr + row + tl.arange(0, N_ROUNDED) * lses_stride0).to(tl.float32)
    lses = tl.where((lses != lses) | (lses == inf), -inf, lses)
    top = tl.max(lses, axis=0)
    top = tl.where(top == -inf, 0.0, top)
    if IS_BASE_E:
        lse = top + tl.log(tl.sum(tl.exp(lses - top), axis=0))
    else:
        lse = top + tl.log2(tl.sum(tl.exp2(lses - top), axis=0))
    tl.store(vlse_ptr + row, lse)

    own = tl.load(lses_ptr + row + lse_idx * lses_stride0).to(tl.float32) - lse
    own = tl.where((own != own) | (own == inf), -inf, own)
    if IS_BASE_E:
        factor = tl.exp(own)
    else:
        factor = tl.exp2(own)

    place = token * outputs_stride0 + head * outputs_stride1
    place += tl.arange(0, HEAD_DIM) * outputs_stride2
    value = tl.load(outputs_ptr + place).to(tl.float32) * factor
    # An empty shard may have left NaN in its output: 0 times it must be 0.
    value = tl.where(factor == 0.0, 0.0, value)
    tl.store(new_output_ptr + place, value.to(new_output_ptr.dtype.element_ty))
