"""BuildPrefillChunkMetadata: for each query token of a prefill chunk the range of compressed states it may look at.

A chunk holds whole requests; of its query tokens one slice is processed. r tokens share one
compressed state. For request q with queries [s, e), n = e - s, and token j whose index a = s + j
in the chunk lies in the slice, o = a - slice start:

    length = (uncompressed_seq_lens[q] - n + 1 + j) // r
    W > 1: base = length // I // W * I,  length = base + clip(length - base*W - rank*I, 0, I)
    ks[o]  = row_starts[q],   ke[o] = row_starts[q] + length
    token_to_seq[cu[q] : cu[q + 1]] = q,   cu = cu_compressed_seq_lens

W ranks take turns of I states (decode context parallel); the local lengths add up to the global
one. row_starts is cu without DCP and this rank's own cumulative lengths with it; cu is the global
one always. Prefill-context-parallel runs this as rank 0 of 1 on a global plan with row_starts of
its own.

Shapes, all int32: query_start_loc [Q+1] (rebased to the chunk), uncompressed_seq_lens [Q],
cu_compressed_seq_lens [Q+1], row_starts [Q or more], token_to_seq [cu[Q]], ks and ke [slice stop
- slice start]. Requires uncompressed_seq_lens >= n and slice bounds within the chunk. An empty
slice, and requests without queries, are legal; a chunk without compressed states launches
nothing.

Callers and reachable classes
-----------------------------
The metadata builder of a sparse indexer, once for each prefill chunk of a step. At W = 1 it
passes the plain interleave, whose value is unused while its class still counts.

* query_start_loc_ptr: fresh: the chunk's part, rebased. Classes: aligned.
* uncompressed_seq_lens_ptr: `seq_lens[first request : last request]`, behind the decode requests.
  Classes: both: aligned where the first request % 4 == 0.
* cu_compressed_seq_lens_ptr: cumulative lengths of the chunk: fresh, or a slice of the step's.
  Classes: both.
* row_starts_ptr: W = 1: cu_compressed_seq_lens itself; W > 1 or a global plan: fresh local sums.
  Classes: that of cu; aligned.
* token_to_seq_ptr, cu_seqlen_ks_ptr, cu_seqlen_ke_ptr: fresh. Classes: aligned.
* query_slice_start: 0 for the first slice, else a multiple of the slice length. Classes: 16, 2,
  1.
* query_slice_stop: up to the chunk's query length. Classes: 16, 2, 1.
* dcp_rank, dcp_world_size, dcp_interleave: fixed by the configuration and the process. Classes:
  one set of classes for each ratio.
* COMPRESS_RATIO: 1 for a plain indexer, else the ratio of the layer. Classes: the distinct ratios
  of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _build_prefill_chunk_metadata(
    query_start_loc_ptr,
    uncompressed_seq_lens_ptr,
    cu_compressed_seq_lens_ptr,
    row_starts_ptr,
    token_to_seq_ptr,
    cu_seqlen_ks_ptr,
    cu_seqlen_ke_ptr,
    query_slice_start,
    query_slice_stop,
    dcp_rank,
    dcp_world_size,
    dcp_interleave,
    BLOCK_SIZE: tl.constexpr,
    COMPRESS_RATIO: tl.constexpr,
):
    request = tl.program_id(0)
    lane = tl.arange(0, BLOCK_SIZE)
    first = tl.load(query_start_loc_ptr + request)
    end = tl.load(query_start_loc_ptr + request + 1)
    context = tl.load(uncompressed_seq_lens_ptr + request) - (end - first)
    row_start = tl.load(row_starts_ptr + request)

    # `while`, not `range`: the interpreter of Triton 3.6 takes no run-time bound under numpy 2.4.
    query = tl.maximum(first, query_slice_start)
    query_stop = tl.minimum(end, query_slice_stop)
    while query < query_stop:
        position = query + lane
        inside = position < query_stop
        length = (context + 1 + position - first) // COMPRESS_RATIO
        if dcp_world_size > 1:
            own = length // dcp_interleave // dcp_world_size * dcp_interleave
            rest = length - own * dcp_world_size - dcp_rank * dcp_interleave
            length = own + tl.minimum(tl.maximum(rest, 0), dcp_interleave)
        target = position - query_slice_start
        tl.store(cu_seqlen_ks_ptr + target, row_start + tl.zeros_like(length), mask=inside)
        tl.store(cu_seqlen_ke_ptr + target, row_start + length, mask=inside)
        query += BLOCK_SIZE

    token = tl.load(cu_compressed_seq_lens_ptr + request)
    token_stop = tl.load(cu_compressed_seq_lens_ptr + request + 1)
    while token < token_stop:
        target = token + lane
        tl.store(token_to_seq_ptr + target, request + tl.zeros_like(target), mask=target < token_stop)
        token += BLOCK_SIZE
