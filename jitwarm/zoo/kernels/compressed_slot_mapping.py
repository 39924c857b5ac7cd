"""CompressedSlotMapping: the cache slot of each compressed state that a step completes.

r tokens share one compressed state, which the last of them writes. For token j of request q, with n
new tokens, W ranks that take turns of I tokens (decode context parallel, DCP) and storage blocks of
bs states:

    p     = seq_lens[q] - n + j                     position of the token
    state = (p // (I*W) * I + p % I) // r           index among the states of its rank
    out   = block_table[q, state // bs] * bs + state % bs
            if (p + 1) % r == 0 and p >= 0 and slot_mapping[token] != -1, else -1

slot_mapping holds the tokens' own slots (ComputeSlotMapping), and -1 both for a replayed token,
whose state is in the cache already, and for a token of another rank; so no rank is needed. Only -1
means that. A state lives on the rank of its last token, therefore I is a multiple of r where W > 1.

Shapes: slot_mapping int64 [T], query_start_loc int32 [R+1 or more], seq_lens int32 [R or more],
block_table int32 [R, width], out int64 [T or more]. Every row of the table is a request;
query_start_loc ascends to at most T. R = 0, T = 0 and requests without tokens are legal. All of
`out` is written, -1 wherever no request has a token, so nothing of an earlier step survives; a
padded request (sequence length below its query length) has negative positions, which give -1.
Limits: positions below width*bs*r*W; len(out) at most 2**31 - 1024. Slots and table offsets are
64-bit.

The padding is a program of this kernel, one more than there are rows: a fill before the launch
would be a second launch a layer.

Callers and reachable classes
-----------------------------
The metadata builder of each group of compressed layers, once a step for the whole batch. Buffers
are larger than the batch and used from their start.

* slot_mapping_ptr: the mapping of the tokens, `buffer[:num_tokens]`. Classes: aligned.
* query_start_loc_ptr, seq_lens_ptr: `buffer[: num_reqs + 1]`, `buffer[:num_reqs]`. Classes:
  aligned.
* block_table_ptr: the group's table, `[:num_reqs]`. Classes: aligned.
* out_ptr: the builder's own buffer, whole, or fresh. Classes: aligned.
* block_table_stride, out_len: any. Classes: i32, unspecialised.
* block_size: cache block // r, fixed for a ratio. Classes: one of 1, 2, 16 for a ratio.
* dcp_world_size, cp_interleave: fixed by the configuration. Classes: one each.
* COMPRESS_RATIO: ratio of the layers. Classes: the distinct ratios above 1 of the model.

Not declared, and compiled on first use: slices that start at an odd element (of slot_mapping or
out) or at one that is no multiple of 4 (of the int32 tensors).
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

TILE = 1024  # tokens that a program handles at a time
PAD_ID = -1


@triton.jit(do_not_specialize=["block_table_stride", "out_len"])
def _compressed_slot_mapping(
    slot_mapping_ptr,
    query_start_loc_ptr,
    seq_lens_ptr,
    block_table_ptr,
    block_table_stride,
    out_ptr,
    out_len,
    block_size,
    dcp_world_size,
    cp_interleave,
    COMPRESS_RATIO: tl.constexpr,
    PAD_ID: tl.constexpr,
    TILE: tl.constexpr,
):
    request = tl.program_id(0)
    lanes = tl.arange(0, TILE)
    token = tl.load(query_start_loc_ptr + request)
    # While loops: a range with a run-time bound fails in Triton 3.6's interpreter with numpy 2.4.
    if request == tl.num_programs(0) - 1:  # one more than there are requests: the padding
        first = tl.load(query_start_loc_ptr)
        pad = tl.full((TILE,), PAD_ID, tl.int64)
        at = 0
        while at < out_len:
            index = at + lanes
            unowned = (index < first) | (index >= token)
            tl.store(out_ptr + index, pad, mask=unowned & (index < out_len))
            at += TILE
    else:
        row_ptr = block_table_ptr + request.to(tl.int64) * block_table_stride
        end = tl.load(query_start_loc_ptr + request + 1)
        to_position = tl.load(seq_lens_ptr + request) - end
        while token < end:
            index = token + lanes
            in_query = index < end
            position = to_position + index
            own = tl.load(slot_mapping_ptr + index, mask=in_query, other=PAD_ID)
            last = (position >= 0) & ((position + 1) % COMPRESS_RATIO == 0)
            valid = last & (own != PAD_ID)
            turn = position // (cp_interleave * dcp_world_size) * cp_interleave
            state = (turn + position % cp_interleave) // COMPRESS_RATIO
            number = tl.load(row_ptr + state // block_size, mask=valid, other=0).to(tl.int64)
            slot = tl.where(valid, number * block_size + state % block_size, PAD_ID)
            tl.store(out_ptr + index, slot, mask=in_query)
            token += TILE


class CompressedSlotMappingKernel(TritonJitKernel["CompressedSlotMappingKernel.CompileKey"]):
    """Maps the compressed states of a step to cache slots; see the module's text."""

    kernel = _compressed_slot_mapping
    kernel_name = "CompressedSlotMapping"

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """The ratio and the tile are constexprs, the other three go by class (1, 16 or 2)."""

        compress_ratio: int
        tile: int
        block_size: int
        dcp_world_size: int
        cp_interleave: int

    @functools.lru_cache(maxsize=64, typed=True)  # noqa: B019 - the instance is a singleton
    def dispatch(
        self, *, compress_ratio: int, block_size: int, dcp_world_size: int, cp_interleave: int
    ) -> CompileKey:
        """The key of a launch; `block_size` is in states, `cp_interleave` in tokens.

        Raises `BindingError` (a ValueError) for sizes below 1 and for an interleave that tears
        states apart.
        """
        if min(compress_ratio, block_size, dcp_world_size, cp_interleave) < 1:
            raise BindingError(
                f"{self.kernel_name}: ratio, states of a block, world size and interleave must be "
                f"1 or more, not {compress_ratio}, {block_size}, {dcp_world_size} and "
                f"{cp_interleave}: a cache block must hold at least one state"
            )
        if dcp_world_size > 1 and cp_interleave % compress_ratio:
            raise BindingError(
                f"{self.kernel_name}: {dcp_world_size} ranks with turns of {cp_interleave} tokens "
                f"tear states of {compress_ratio} tokens apart: choose a "
                "cp_kv_cache_interleave_size that is a multiple of the ratio"
            )
        cls = triton_scalar_specialization_rep
        return self.CompileKey(
            compress_ratio, TILE, cls(block_size), cls(dcp_world_size), cls(cp_interleave)
        )

    def get_warmup_keys(self, config: Any) -> list[CompileKey] | NoKeys:
        """A key for each distinct ratio above 1 of the model, its indexer's pool included."""
        parallel, model = config.parallel_config, config.model_config.hf_config
        declared = (
            *(getattr(model, "compress_ratios", None) or ()),
            getattr(model, "index_kpool", None) or 1,
        )
        ratios = tuple(dict.fromkeys(ratio for ratio in declared if ratio > 1))
        if not ratios:
            return NoKeys(
                "no compressed layer: neither compress_ratios nor index_kpool of the model has a "
                "ratio above 1"
            )
        block = config.cache_config.block_size
        return self._trace_dispatch(self.dispatch)(
            zip_inputs(*({"compress_ratio": r, "block_size": block // r} for r in ratios)),
            dcp_world_size=parallel.decode_context_parallel_size,
            cp_interleave=parallel.cp_kv_cache_interleave_size,
        )

    def warmup_inputs(self, key: CompileKey) -> dict[str, Any]:
        """Arguments of a call that has this key; a class stands for itself where it can."""
        ratio, interleave = key.compress_ratio, key.cp_interleave
        if key.dcp_world_size > 1 and interleave % ratio:  # of the same class, but whole states
            interleave = ratio if interleave == 2 else 16 * ratio
        return {
            "slot_mapping": TritonWarmupTensor(torch.int64, shape=(2,)),
            "query_start_loc": TritonWarmupTensor(torch.int32, shape=(3,)),
            "seq_lens": TritonWarmupTensor(torch.int32, shape=(2,)),
            "block_table": TritonWarmupTensor(torch.int32, shape=(2, 2)),
            "block_size": key.block_size,
            "compress_ratio": ratio,
            "dcp_world_size": key.dcp_world_size,
            "cp_interleave": interleave,
            "out": TritonWarmupTensor(torch.int64, shape=(2,)),
        }

    @kernel_launcher
    def __call__(
        self,
        slot_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        seq_lens: torch.Tensor,
        block_table: torch.Tensor,
        *,
        block_size: int,
        compress_ratio: int,
        dcp_world_size: int = 1,
        cp_interleave: int = 1,
        out: torch.Tensor | None = None,
    ) -> Any:
        """Fill `out` (allocated if absent) and return its first T entries.

        Never waits for the device, so values are not checked.
        Raises `BindingError` (a ValueError) for tensors or sizes that do not fit each other.
        """
        key = self.dispatch(
            compress_ratio=compress_ratio,
            block_size=block_size,
            dcp_world_size=dcp_world_size,
            cp_interleave=cp_interleave,
        )
        num_tokens, num_reqs = slot_mapping.shape[0], block_table.shape[0]
        if out is None:
            out = torch.empty_like(slot_mapping)
        if not (
            slot_mapping.dtype == out.dtype == torch.int64
            and query_start_loc.dtype == seq_lens.dtype == block_table.dtype == torch.int32
            and slot_mapping.ndim == out.ndim == query_start_loc.ndim == seq_lens.ndim == 1
            and block_table.ndim == 2
            and query_start_loc.shape[0] > num_reqs
            and seq_lens.shape[0] >= num_reqs
            and out.shape[0] >= num_tokens
            and slot_mapping.is_contiguous()
            and out.is_contiguous()
            and query_start_loc.is_contiguous()
            and seq_lens.is_contiguous()
            and (block_table.stride(1) == 1 or not num_reqs)
        ):
            tensors = (slot_mapping, query_start_loc, seq_lens, block_table, out)
            raise BindingError(
                f"{self.kernel_name}: needs contiguous slot_mapping int64 [T], query_start_loc "
                "int32 [R+1 or more], seq_lens int32 [R or more] and out int64 [T or more], and "
                "block_table int32 [R, width] with columns side by side; got "
                + ", ".join(f"{t.dtype} {list(t.shape)}" for t in tensors)
            )
        launch = {
            "out_ptr": out,
            "out_len": out.shape[0],
            "PAD_ID": PAD_ID,
            "TILE": key.tile,
        }
        grid = (num_reqs + 1,) if out.shape[0] else None
        if out.shape[0] > num_tokens and isinstance(out, torch.Tensor):  # a stand-in stays whole
            out = out[:num_tokens]
        return grid, launch, out


compressed_slot_mapping = CompressedSlotMappingKernel()
