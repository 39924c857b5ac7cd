"""PackDCPTopkCandidates: one rank's local top-k as (score, global token id) pairs, to be gathered.

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

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (kernel arguments have no Python types)

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.contract import TritonJitKernel, TritonWarmupTensor, kernel_launcher
from jitwarm.declare import NoKeys
from jitwarm.errors import BindingError, DeclarationError

BLOCK_SIZE = 512


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


class PackDCPTopkCandidatesKernel(TritonJitKernel["PackDCPTopkCandidatesKernel.CompileKey"]):
    """Packs local candidates for the all-gather; see the module's text."""

    kernel = _pack_dcp_topk_candidates
    kernel_name = "PackDCPTopkCandidates"

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """Everything is a constexpr of the kernel."""

        dcp_rank: int
        dcp_world_size: int
        cp_interleave: int
        has_row_starts: bool
        topk: int
        block_size: int

    @functools.lru_cache(maxsize=64, typed=True)  # noqa: B019 - the instance is a singleton
    def dispatch(
        self,
        *,
        dcp_rank: int,
        dcp_world_size: int,
        cp_interleave: int,
        has_row_starts: bool,
        topk: int,
    ) -> CompileKey:
        """The key of a launch on one rank, for rows of `topk` candidates.

        Raises `BindingError` (a ValueError) for a rank outside of the group.
        """
        if not 0 <= dcp_rank < dcp_world_size or cp_interleave < 1:
            raise BindingError(
                f"{self.kernel_name}: needs a rank of the group and an interleave of 1 or more, "
                f"got rank {dcp_rank} of {dcp_world_size} and interleave {cp_interleave}"
            )
        return self.CompileKey(
            dcp_rank, dcp_world_size, cp_interleave, has_row_starts, topk, BLOCK_SIZE
        )

    def get_warmup_keys(self, config: Any, *, prefills: bool = True) -> list[CompileKey] | NoKeys:
        """Both keys of this rank: without row starts (decode) and with them (prefill), if any
        prefill selects.
        """
        parallel, model = config.parallel_config, config.model_config.hf_config
        world_size = parallel.decode_context_parallel_size
        if world_size <= 1:
            return NoKeys("no decode context parallelism: candidates stay on their rank")
        pool = getattr(model, "index_kpool", 1)
        topk = getattr(model, "index_topk", 0) // pool
        interleave = parallel.cp_kv_cache_interleave_size
        if topk <= 0:
            return NoKeys("the model has no sparse indexer (index_topk)")
        if interleave % pool:
            raise DeclarationError(
                f"{self.kernel_name}: pools of {pool} tokens do not fit turns of {interleave}: "
                "cp_kv_cache_interleave_size must be a multiple of index_kpool"
            )
        return self._trace_dispatch(self.dispatch)(
            dcp_rank=parallel.dcp_rank,
            dcp_world_size=world_size,
            cp_interleave=interleave // pool,
            has_row_starts=(False, True) if prefills else False,
            topk=topk,
        )

    def warmup_inputs(self, key: CompileKey) -> dict[str, Any]:
        """Arguments of a call that has this key."""
        starts = TritonWarmupTensor(torch.int32, shape=(2,)) if key.has_row_starts else None
        return {
            "logits": TritonWarmupTensor(torch.float32, shape=(2, key.topk)),
            "topk_indices": TritonWarmupTensor(torch.int32, shape=(2, key.topk)),
            "row_starts": starts,
            "packed": TritonWarmupTensor(torch.float32, shape=(2, key.topk, 2)),
            "dcp_rank": key.dcp_rank,
            "dcp_world_size": key.dcp_world_size,
            "cp_interleave": key.cp_interleave,
        }

    @kernel_launcher
    def __call__(
        self,
        logits: torch.Tensor,
        topk_indices: torch.Tensor,
        row_starts: torch.Tensor | None = None,
        packed: torch.Tensor | None = None,
        *,
        dcp_rank: int,
        dcp_world_size: int,
        cp_interleave: int,
    ) -> Any:
        """Fill `packed` (allocated if absent) and return it.

        Raises `BindingError` (a ValueError) for dtypes, shapes or a rank that do not fit.
        """
        rows, topk = topk_indices.shape
        if not (
            logits.dtype is torch.float32
            and topk_indices.dtype is torch.int32
            and logits.shape[0] == rows
            and (row_starts is None or _fits(row_starts, torch.int32, (rows,)))
            and (packed is None or _fits(packed, torch.float32, (rows, topk, 2)))
        ):
            raise BindingError(
                f"{self.kernel_name}: needs logits float32 [R, C], topk_indices int32 [R, K], "
                "row_starts int32 [R] and packed float32 [R, K, 2], got "
                + ", ".join(
                    f"{t.dtype} {tuple(t.shape)}"
                    for t in (logits, topk_indices, row_starts, packed)
                    if t is not None
                )
            )
        if packed is None:
            packed = torch.empty((rows, topk, 2), dtype=torch.float32, device=logits.device)
        has_row_starts = row_starts is not None
        key = self.dispatch(
            dcp_rank=dcp_rank,
            dcp_world_size=dcp_world_size,
            cp_interleave=cp_interleave,
            has_row_starts=has_row_starts,
            topk=topk,
        )
        launch = {
            "row_starts_ptr": row_starts if has_row_starts else topk_indices,  # never read
            "packed_ptr": packed,
            "num_cols": logits.shape[1],
            "HAS_ROW_STARTS": has_row_starts,
            "TOPK": topk,
            "BLOCK_SIZE": key.block_size,
            "num_warps": 8,
        }
        return (rows, -(-topk // key.block_size)), launch, packed


def _fits(tensor: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> bool:
    return tensor.dtype is dtype and tensor.shape == shape


pack_dcp_topk_candidates = PackDCPTopkCandidatesKernel()
