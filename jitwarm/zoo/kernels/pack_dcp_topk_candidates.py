"""PackDCPTopkCandidates: each rank turns its local top-k into (score, global token id) pairs, to be all-gathered.

With W ranks that take turns of I tokens (decode context parallel, DCP), for row r and slot k, t =
topk_indices[r, k]:

    column          = min(t + row_starts[r], C - 1)          (row_starts absent: 0)
    packed[r, k, 0] = logits[r, column]                      -inf where t < 0
    packed[r, k, 1] = t // I * W*I + rank*I + t % I          -1   where t < 0

Shapes: logits float32 [R, C], topk_indices int32 [R, K], row_starts int32 [R] or absent, packed
float32 [R, K, 2]. Strides of logits, topk_indices and packed are free. R = 0 and C = 0 are legal.
Limits: every negative id is empty, not only -1. row_starts must be 0 or more; it shifts the
column, never the id. A column past the end reads the last one. Ids are float32: exact up to
2**24, then the nearest even one. Offsets inside a row are 32-bit. A pooled indexer (`index_kpool`
= p > 1) selects pools instead of tokens: K = index_topk // p and I = interleave // p.

Callers and reachable classes
-----------------------------
Every sparse indexer with W > 1, once a layer for the decode rows and once a layer and prefill
chunk for the prefill rows.

* logits_ptr: fresh scores of the indexer, float32. Classes: aligned.
* topk_indices_ptr: `topk_buffer[:num_rows]`, int32, or rows of it from `[start:stop]`: a row is K
  elements. Classes: aligned where K is a multiple of 4.
* row_starts_ptr: decode: absent, topk_indices stands in; prefill: the chunk's fresh
  `cu_seqlen_ks`, int32. Classes: aligned.
* packed_ptr: fresh scratch, float32. Classes: aligned.
* num_cols, seven strides: any. Classes: i32, unspecialised.
* DCP_RANK, DCP_WORLD_SIZE, CP_INTERLEAVE, TOPK: fixed by the configuration and the process.
  Classes: one set a process.
* HAS_ROW_STARTS: False for decode, True for prefill. Classes: both.

Not reached and therefore not declared: a row_starts that is itself a slice at an odd offset
(compiles on first use).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit(
    do_not_specialize=[
        "num_cols",
        "logits_stride0",
        "logits_stride1",
        "topk_indices_stride0",
        "topk_indices_stride1",
        "packed_stride0",
        "packed_stride1",
        "packed_stride2",
    ]
)
def _pack_dcp_topk_candidates(
    logits_ptr,
    topk_indices_ptr,
    row_starts_ptr,
    packed_ptr,
    num_cols,
    logits_stride0,
    logits_stride1,
    topk_indices_stride0,
    topk_indices_stride1,
    packed_stride0,
    packed_stride1,
    packed_stride2,
    DCP_RANK: tl.constexpr,
    DCP_WORLD_SIZE: tl.constexpr,
    CP_INTERLEAVE: tl.constexpr,
    HAS_ROW_STARTS: tl.constexpr,
    TOPK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    in_row = slot < TOPK
    topk_row = topk_indices_ptr + row * topk_indices_stride0
    token = tl.load(topk_row + slot * topk_indices_stride1, mask=in_row, other=-1)
    valid = token >= 0
    token = tl.maximum(token, 0)

    column = token
    if HAS_ROW_STARTS:
        column += tl.load(row_starts_ptr + row)
    column = tl.minimum(column, tl.maximum(num_cols - 1, 0))
    score = tl.load(
        logits_ptr + row * logits_stride0 + column * logits_stride1,
        mask=valid & (column < num_cols),  # a row of no columns has nothing to read
        other=float("-inf"),
    )

    # The id ignores row_starts: it is the place in the sequence, not in the row of logits.
    turn = token // CP_INTERLEAVE * (DCP_WORLD_SIZE * CP_INTERLEAVE)
    token_id = turn + DCP_RANK * CP_INTERLEAVE + token % CP_INTERLEAVE
    token_id = tl.where(valid, token_id, -1).to(tl.float32)

    pair = packed_ptr + row * packed_stride0 + slot * packed_stride1
    tl.store(pair, score, mask=in_row)
    tl.store(pair + packed_stride2, token_id, mask=in_row)
