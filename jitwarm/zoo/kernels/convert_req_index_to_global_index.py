"""ConvertReqIndexToGlobalIndex: request-local token ids as physical rows of the KV cache.

W ranks take turns of I tokens (decode context parallel, DCP). A cache block holds BS tokens and
takes SR rows of the physical row view (SR > BS where pages of other layers lie in between). For
query t, column k, tok = token_indices[t, k]:

    owner = tok // I % W,   place = tok // (W*I) * I + tok % I,   block = place // BS
    decode row:   out[t, k] = block_table[request, block] * SR + place % BS
    prefill row:  out[t, k] = owner * workspace_rank_stride + workspace_start[p] + place

A row is a prefill row where p = prefill_request_id[t] is 0 or more. -1 instead where tok < 0,
where block is outside of the table (in prefill rows too), and in decode rows where owner is not
this rank. The prefill workspace is the rank-major gather of all shards,
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
Every sparse MLA layer, once a step for all its tokens; prefill rows are told apart by
prefill_request_id. Batch buffers are larger than the batch and used from their start. K is a
multiple of 128, so that rows of token_indices and out would be aligned at every offset.

* req_id_ptr: `req_id_per_token[:num_tokens]`. Classes: aligned.
* block_table_ptr: the group's table, `[:num_reqs]`. Classes: aligned.
* token_indices_ptr: `topk_buffer[:num_tokens]`. Classes: aligned.
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
* BLOCK_SIZE ... NUM_TOPK_TOKENS: W > 1: one set, filtered and counted. W = 1: two, counted for a
  step of decodes alone; with prefills in place, or into a workspace where the cache is fp8.
  Classes: those.

The engine that the kernel comes from declares the modes of all its backends and caches, five sets
with W > 1 and four without: `as_published=True` does so too.

Not declared, and compiled on first use: a req_id sliced at an offset that is no multiple of 4 (not
aligned), and filtering by rank without counting (`filter_dcp(..., compact=False)` without counts).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (kernel arguments have no Python types)

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.contract import (
    TritonJitKernel,
    TritonWarmupTensor,
    kernel_launcher,
    triton_scalar_specialization_rep,
    zip_inputs,
)
from jitwarm.declare import NoKeys
from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.compute_slot_mapping import block_table_width
from jitwarm.zoo.kernels.convert_req_index_modes import launch_modes

TILE = 128
LARGEST_PADDED_TILE = 4096  # beyond it a whole row is one tile only if its length is a power of two


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


class ConvertReqIndexToGlobalIndexKernel(
    TritonJitKernel["ConvertReqIndexToGlobalIndexKernel.CompileKey"]
):
    """Converts ids to rows: `convert` for a layer, `filter_dcp` for one rank's share of a top-k."""

    kernel = _convert_req_index_to_global_index
    kernel_name = "ConvertReqIndexToGlobalIndex"

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """Constexprs and num_warps by value, the row stride of the table by class (1, 16 or 2)."""

        block_size: int
        block_stride_rows: int
        block_n: int
        has_prefill_workspace: bool
        has_idx_mapping: bool
        count_valid: bool
        single_tile: bool
        compact_to_front: bool
        dcp_size: int
        dcp_rank: int
        dcp_interleave: int
        num_warps: int
        num_topk_tokens: int
        block_table_stride: int

    @functools.lru_cache(maxsize=1024, typed=True)  # noqa: B019 - the instance is a singleton
    def dispatch(
        self,
        *,
        block_size: int,
        block_stride_rows: int,
        num_topk_tokens: int,
        block_table_stride: int,
        has_prefill_workspace: bool,
        has_idx_mapping: bool,
        count_valid: bool,
        compact_to_front: bool,
        dcp_size: int,
        dcp_rank: int,
        dcp_interleave: int,
    ) -> CompileKey:
        """The key of a launch.

        Raises `BindingError` (a ValueError) where compacting does not count, and for a number of
        tokens, a rank or a block size that the kernel does not have.
        """
        if compact_to_front and not count_valid:
            raise BindingError(f"{self.kernel_name}: compacting needs valid counts")
        if num_topk_tokens < 1 or num_topk_tokens % TILE:
            raise BindingError(
                f"{self.kernel_name}: {num_topk_tokens} top-k tokens are no multiple of {TILE}"
            )
        if not (
            0 <= dcp_rank < dcp_size
            and dcp_interleave >= 1
            and 1 <= block_size <= block_stride_rows
        ):
            raise BindingError(
                f"{self.kernel_name}: needs a rank of the group, an interleave of 1 or more and "
                f"blocks that fit their rows, got rank {dcp_rank} of {dcp_size}, interleave "
                f"{dcp_interleave}, blocks of {block_size} in {block_stride_rows} rows"
            )
        block_n, num_warps, single_tile = tiling(num_topk_tokens, count_valid)
        return self.CompileKey(
            block_size,
            block_stride_rows,
            block_n,
            has_prefill_workspace,
            has_idx_mapping,
            count_valid,
            single_tile,
            compact_to_front,
            dcp_size,
            dcp_rank,
            dcp_interleave,
            num_warps,
            num_topk_tokens,
            triton_scalar_specialization_rep(block_table_stride),
        )

    def get_warmup_keys(
        self,
        config: Any,
        *,
        block_stride_rows: int | None = None,
        prefills: bool = True,
        as_published: bool = False,
    ) -> list[CompileKey] | NoKeys:
        """The keys of a cache group whose blocks take `block_stride_rows` rows (default: no gap).

        `prefills` says whether any prefill selects. `as_published` gives the modes of every backend
        and cache. Prefill context parallelism adds one with a workspace, a hierarchical sparse
        cache (`config.hierarchical_sparse_config` set) two with an index map.
        """
        parallel, model = config.parallel_config, config.model_config
        topk = getattr(model.hf_config, "index_topk", 0)
        block_size = config.cache_config.block_size
        if topk <= 0:
            return NoKeys("the model has no sparse indexer (index_topk)")
        modes = launch_modes(config, prefills=prefills, as_published=as_published)
        return self._trace_dispatch(self.dispatch)(
            zip_inputs(*modes),
            block_size=block_size,
            block_stride_rows=block_size if block_stride_rows is None else block_stride_rows,
            num_topk_tokens=topk,
            block_table_stride=block_table_width(
                model.max_model_len, block_size, parallel.decode_context_parallel_size
            ),
        )

    def warmup_inputs(self, key: CompileKey) -> dict[str, Any]:
        """Arguments of a call that has this key."""

        def tensor(*shape: int, when: bool = True) -> Any:
            return TritonWarmupTensor(torch.int32, shape=shape) if when else None

        table_strides = (key.block_table_stride, 1)
        return {
            "req_id": tensor(2),
            "block_table": TritonWarmupTensor(torch.int32, shape=(2, 2), strides=table_strides),
            "token_indices": tensor(2, key.num_topk_tokens),
            "out": tensor(2, key.num_topk_tokens),
            "valid_count": tensor(2, when=key.count_valid),
            "idx_mapping": tensor(2, when=key.has_idx_mapping),
            "prefill_request_id": tensor(2, when=key.has_prefill_workspace),
            "workspace_start": tensor(2, when=key.has_prefill_workspace),
            "block_size": key.block_size,
            "block_stride_rows": key.block_stride_rows,
            "compact_to_front": key.compact_to_front,
            "dcp_size": key.dcp_size,
            "dcp_rank": key.dcp_rank,
            "dcp_interleave": key.dcp_interleave,
        }

    @kernel_launcher
    def __call__(
        self,
        req_id: torch.Tensor,
        block_table: torch.Tensor,
        token_indices: torch.Tensor,
        out: torch.Tensor,
        valid_count: torch.Tensor | None = None,
        idx_mapping: torch.Tensor | None = None,
        prefill_request_id: torch.Tensor | None = None,
        workspace_start: torch.Tensor | None = None,
        workspace_rank_stride: int = 0,
        *,
        block_size: int,
        block_stride_rows: int,
        compact_to_front: bool,
        dcp_size: int = 1,
        dcp_rank: int = 0,
        dcp_interleave: int = 1,
    ) -> Any:
        """The bare launch behind `convert` and `filter_dcp` of convert_req_index_entry_points.py,
        which check and prepare the buffers.

        Counts where `valid_count` is given. Where `tiling` says that programs share a row,
        valid_count must be zero and, for compacting, out must be -1 before.
        """
        num_queries, num_topk_tokens = token_indices.shape
        counts = valid_count is not None
        key = self.dispatch(
            block_size=block_size,
            block_stride_rows=block_stride_rows,
            num_topk_tokens=num_topk_tokens,
            block_table_stride=block_table.stride(0),
            has_prefill_workspace=prefill_request_id is not None,
            has_idx_mapping=idx_mapping is not None,
            count_valid=counts,
            compact_to_front=compact_to_front,
            dcp_size=dcp_size,
            dcp_rank=dcp_rank,
            dcp_interleave=dcp_interleave,
        )
        launch = {
            "max_num_blocks_per_req": block_table.shape[1],
            "BLOCK_N": key.block_n,
            "HAS_PREFILL_WORKSPACE": key.has_prefill_workspace,
            "HAS_IDX_MAPPING": key.has_idx_mapping,
            "COUNT_VALID": counts,
            "SINGLE_TILE": key.single_tile,
            "NUM_TOPK_TOKENS": num_topk_tokens,
            "num_warps": key.num_warps,
        }
        return (num_queries, -(-num_topk_tokens // key.block_n)), launch


@functools.lru_cache(maxsize=256, typed=True)
def tiling(num_topk_tokens: int, counting: bool) -> tuple[int, int, bool]:
    """Columns of a program, its warps, and whether that program does a whole row."""
    padded = 1 << max(num_topk_tokens - 1, 0).bit_length()
    if counting and (padded == num_topk_tokens or padded <= LARGEST_PADDED_TILE):
        return padded, 8, True
    return TILE, 4, False


convert_req_index_to_global_index = ConvertReqIndexToGlobalIndexKernel()
