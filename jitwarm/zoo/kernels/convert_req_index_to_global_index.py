"""ConvertReqIndexToGlobalIndex: turns request-local token ids, as a top-k selects them, into physical rows of the KV cache.

W ranks take turns of I tokens (decode context parallel, DCP). A cache block holds BS tokens and
takes SR rows of the physical row view (SR > BS where pages of other layers lie in between). For
query t, column k, tok = token_indices[t, k]:

    owner = tok // I % W,   place = tok // (W*I) * I + tok % I,   block = place // BS
    decode row:   out[t, k] = block_table[request, block] * SR + place % BS
    prefill row:  out[t, k] = owner * workspace_rank_stride + workspace_start[p] + place,   p = prefill_request_id[t] >= 0

-1 instead where tok < 0, where block is outside of the table (in prefill rows too), and in decode
rows where owner is not this rank. The prefill workspace is the rank-major gather of all shards,
so a prefill row may use tokens of every rank. request = req_id[t], or max(idx_mapping[req_id[t]],
0) with an idx_mapping.

Shapes, all int32: req_id [T], block_table [Q, M], token_indices and out [T, K], valid_count [T],
idx_mapping [Q'], prefill_request_id [T], workspace_start [P]. K is a multiple of 128. T = 0 is
legal.

Counting gives the number of valid entries of each row. Compacting needs counting, and moves the
valid entries to the front with -1 after them. With P = np2(K): where it counts and P == K or P <=
4096, one program of P columns and 8 warps does a whole row and keeps the order of the columns.
Otherwise programs of 128 columns and 4 warps share a row: the order is then unspecified, counts
add up on a zeroed buffer and a compacted row starts as -1 (the two entry points see to both).
Limits: physical rows, and offsets inside a row, below 2**31.

Callers and reachable classes
-----------------------------
Every sparse MLA layer, once a layer for the decode rows and once a layer for the prefill rows.
Batch buffers are larger than the batch and sliced; K is a multiple of 128, so rows of
token_indices and out stay aligned at every offset.

* req_id_ptr: decode: `req_id_per_token[:num_decode_tokens]`; prefill rows:
  `req_id_per_token[num_decode_tokens:]`, int32. Classes: aligned; in prefill not aligned where
  num_decode_tokens % 4 != 0.
* block_table_ptr: the group's table or rows of it `[num_decodes:]`, int32. Classes: aligned where
  the row stride is a multiple of 4.
* token_indices_ptr: `topk_buffer[:num_tokens]` or `[num_decode_tokens:]`. Classes: aligned.
* out_ptr, valid_count_ptr: fresh, or slices of scratch from its start; None without counting.
  Classes: aligned; None.
* idx_mapping_ptr: None; the index map of a hierarchical sparse cache, from its start. Classes:
  None; aligned.
* prefill_request_id_ptr, workspace_start_ptr: None; fresh tensors of the prefill metadata.
  Classes: None; aligned.
* max_num_blocks_per_req, workspace_rank_stride: any. Classes: i32, unspecialised.
* block_table_stride0: row stride of the table, fixed by the configuration. Classes: one class.
* block_table_stride1, token_indices_stride1, out_stride1: 1. Classes: 1.
* token_indices_stride0, out_stride0: K. Classes: 16.
* BLOCK_SIZE ... NUM_TOPK_TOKENS: five sets with W > 1, four without, see `get_warmup_keys`.
  Classes: those.

Declared with every pointer aligned. Not declared, and compiled on first use: an unaligned req_id,
and filtering by rank without counting (`filter_dcp(..., compact=False)` that asks for no counts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["max_num_blocks_per_req", "workspace_rank_stride"])
def _convert_req_index_to_global_index(
    req_id_ptr,
    block_table_ptr,
    token_indices_ptr,
    out_ptr,
    valid_count_ptr,
    idx_mapping_ptr,
    prefill_request_id_ptr,
    workspace_start_ptr,
    max_num_blocks_per_req,
    workspace_rank_stride,
    block_table_stride0,
    block_table_stride1,
    token_indices_stride0,
    token_indices_stride1,
    out_stride0,
    out_stride1,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_STRIDE_ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HAS_PREFILL_WORKSPACE: tl.constexpr,
    HAS_IDX_MAPPING: tl.constexpr,
    COUNT_VALID: tl.constexpr,
    SINGLE_TILE: tl.constexpr,
    COMPACT_TO_FRONT: tl.constexpr,
    DCP_SIZE: tl.constexpr,
    DCP_RANK: tl.constexpr,
    DCP_INTERLEAVE: tl.constexpr,
    NUM_TOPK_TOKENS: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_row = column < NUM_TOPK_TOKENS
    token = tl.load(
        token_indices_ptr + query * token_indices_stride0 + column * token_indices_stride1,
        mask=in_row,
        other=-1,
    )
    valid = token >= 0
    token = tl.maximum(token, 0)
    owner = token // DCP_INTERLEAVE % DCP_SIZE
    place = token // (DCP_SIZE * DCP_INTERLEAVE) * DCP_INTERLEAVE + token % DCP_INTERLEAVE
    block = place // BLOCK_SIZE
    valid = valid & (block < max_num_blocks_per_req)
    in_table = owner == DCP_RANK
    if HAS_PREFILL_WORKSPACE:
        # Spread over the row: a mask of the row takes no scalar condition in the interpreter.
        prefill = tl.load(prefill_request_id_ptr + query) + tl.zeros((BLOCK_N,), tl.int32)
        in_table = in_table & (prefill < 0)
        valid = valid & (in_table | (prefill >= 0))
        in_table = in_table & valid
    else:
        valid = valid & in_table
        in_table = valid

    request = tl.load(req_id_ptr + query)
    if HAS_IDX_MAPPING:
        request = tl.maximum(tl.load(idx_mapping_ptr + request), 0)
    table_row = block_table_ptr + request.to(tl.int64) * block_table_stride0
    block_id = tl.load(table_row + block * block_table_stride1, mask=in_table, other=0)
    row = block_id * BLOCK_STRIDE_ROWS + place % BLOCK_SIZE
    if HAS_PREFILL_WORKSPACE:
        start = tl.load(workspace_start_ptr + prefill, mask=valid & (prefill >= 0), other=0)
        row = tl.where(prefill >= 0, owner * workspace_rank_stride + start + place, row)
    row = tl.where(valid, row, -1)

    out_row = out_ptr + query * out_stride0
    if COUNT_VALID:
        count = tl.sum(valid.to(tl.int32), axis=0)
        front = 0
        if SINGLE_TILE:
            tl.store(valid_count_ptr + query, count)
        else:
            front = tl.atomic_add(valid_count_ptr + query, count)
        if COMPACT_TO_FRONT:
            target = front + tl.cumsum(valid.to(tl.int32), axis=0) - 1
            tl.store(out_row + target * out_stride1, row, mask=valid)
            if SINGLE_TILE:
                tl.store(out_row + column * out_stride1, -1, mask=in_row & (column >= count))
        else:
            tl.store(out_row + column * out_stride1, row, mask=in_row)
    else:
        tl.store(out_row + column * out_stride1, row, mask=in_row)
