"""ComputeSlotMapping: the KV-cache slot of each token of a step, on this rank.

The tokens i of request q, those in [query_start_loc[q], query_start_loc[q+1]), have position p.
With block size B, world size W and interleave I of decode context parallelism (DCP):

    block = p // (B*W),   o = p % (B*W)
    mine  = (o // I) % W == rank
    slot_mapping[i] = block_table[q, block]*B + (o // (I*W))*I + o % I   if mine else -1

Entries [num_tokens, len(slot_mapping)) become -1, where num_tokens is the length of `positions`.
Entries from query_start_loc[-1] to num_tokens are not written, where the two differ.

Shapes: query_start_loc int32 [Q+1], positions int64 [num_tokens], block_table int32
[Q or more, width], slot_mapping int64 [num_tokens or more]. Q = 0 is legal. The table row of a
request is its index in the batch; the row stride may exceed the width.
Limits: B % I == 0; positions below width*B*W (a negative one gives -1); lengths of positions and
slot_mapping at most 2**31 - 1024. Slots and table offsets are 64-bit.

Callers and reachable classes
-----------------------------
Each block table (one per KV-cache group) makes the mapping once a step.

    query_start_loc_ptr  query_start_loc[:num_reqs + 1], the start of a larger buffer: aligned
    positions_ptr        positions[:num_tokens], the start of a larger buffer: aligned
    block_table_ptr      the group's whole table: aligned
    slot_mapping_ptr     the group's whole buffer: aligned
    num_tokens, max_num_tokens
                         anything: i32, unspecialised
    block_table_stride   width of the group's table, fixed when it is made: one of 1, 2, 16
    KV_CACHE_BLOCK_SIZE, TOTAL_CP_WORLD_SIZE, TOTAL_CP_RANK, CP_KV_CACHE_INTERLEAVE_SIZE
                         fixed when the table is made: one set for a group and rank
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
from jitwarm.errors import BindingError, DeclarationError

TABLE_ALIGNMENT = 128  # tokens; a row of a block table covers a multiple of it
_TILE = {"PAD_ID": -1, "BLOCK_SIZE": 1024}


@triton.jit(do_not_specialize=["num_tokens", "max_num_tokens"])
def _compute_slot_mapping(
    num_tokens,
    max_num_tokens,
    query_start_loc_ptr,
    positions_ptr,
    block_table_ptr,
    block_table_stride,
    slot_mapping_ptr,
    KV_CACHE_BLOCK_SIZE: tl.constexpr,
    TOTAL_CP_WORLD_SIZE: tl.constexpr,
    TOTAL_CP_RANK: tl.constexpr,
    CP_KV_CACHE_INTERLEAVE_SIZE: tl.constexpr,
    PAD_ID: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    req = tl.program_id(0)
    lanes = tl.arange(0, BLOCK_SIZE)
    # While loops: a range with a run-time bound fails in Triton 3.6's interpreter with numpy 2.4.
    if req == tl.num_programs(0) - 1:  # one program more than there are requests: the padding
        pad = tl.full((BLOCK_SIZE,), PAD_ID, tl.int64)
        at = num_tokens
        while at < max_num_tokens:
            index = at + lanes
            tl.store(slot_mapping_ptr + index, pad, mask=index < max_num_tokens)
            at += BLOCK_SIZE
    else:
        STRETCH: tl.constexpr = KV_CACHE_BLOCK_SIZE * TOTAL_CP_WORLD_SIZE
        ROUND: tl.constexpr = CP_KV_CACHE_INTERLEAVE_SIZE * TOTAL_CP_WORLD_SIZE
        row_ptr = block_table_ptr + req.to(tl.int64) * block_table_stride
        start = tl.load(query_start_loc_ptr + req)
        end = tl.load(query_start_loc_ptr + req + 1)
        while start < end:
            index = start + lanes
            in_query = index < end
            position = tl.load(positions_ptr + index, mask=in_query, other=0)
            block = position // STRETCH
            offset = position - block * STRETCH
            owner = (offset // CP_KV_CACHE_INTERLEAVE_SIZE) % TOTAL_CP_WORLD_SIZE
            mine = (position >= 0) & (owner == TOTAL_CP_RANK)
            number = tl.load(row_ptr + block, mask=in_query & mine, other=0).to(tl.int64)
            turn = (offset // ROUND) * CP_KV_CACHE_INTERLEAVE_SIZE
            entry = turn + offset % CP_KV_CACHE_INTERLEAVE_SIZE
            slot = tl.where(mine, number * KV_CACHE_BLOCK_SIZE + entry, PAD_ID)
            tl.store(slot_mapping_ptr + index, slot, mask=in_query)
            start += BLOCK_SIZE


@functools.lru_cache(maxsize=64, typed=True)
def _constants(block_size: int, world_size: int, rank: int, interleave: int) -> dict[str, int]:
    """Compile-time arguments, one source for the declaration and for `compute_slot_mapping`."""
    if min(block_size, world_size, interleave) < 1 or not 0 <= rank < world_size:
        raise BindingError(
            "ComputeSlotMapping: block size, world size and interleave must be 1 or more and the "
            f"rank one of the world, not {block_size}, {world_size}, {interleave} and {rank}"
        )
    if block_size % interleave:
        raise BindingError(
            f"ComputeSlotMapping: a block of {block_size} tokens does not hold whole turns of "
            f"{interleave}: choose an interleave that divides the block size"
        )
    return {
        "KV_CACHE_BLOCK_SIZE": block_size,
        "TOTAL_CP_WORLD_SIZE": world_size,
        "TOTAL_CP_RANK": rank,
        "CP_KV_CACHE_INTERLEAVE_SIZE": interleave,
        **_TILE,
    }


@declare(_compute_slot_mapping)
def ComputeSlotMapping(
    *,
    kv_cache_block_size: int,
    total_cp_world_size: int,
    total_cp_rank: int,
    cp_kv_cache_interleave_size: int,
    block_table_stride: int,
) -> Iterator[Any]:
    """The one key of a KV-cache group: everything is known when its block table is made."""
    yield launch(
        num_tokens=2,
        max_num_tokens=2,
        query_start_loc_ptr=TensorSpec("int32"),
        positions_ptr=TensorSpec("int64"),
        block_table_ptr=TensorSpec("int32"),
        block_table_stride=block_table_stride,
        slot_mapping_ptr=TensorSpec("int64"),
        **_constants(
            kv_cache_block_size, total_cp_world_size, total_cp_rank, cp_kv_cache_interleave_size
        ),
    )


def block_table_width(
    max_model_len: int,
    block_size: int,
    cp_world_size: int = 1,
    *,
    alignment: int = TABLE_ALIGNMENT,
) -> int:
    """Blocks in a row of a group's block table: `max_model_len` tokens spread over the world.

    Rounded up so that width * block_size is a multiple of `alignment` tokens; state groups, which
    are not rounded, take `alignment=1`.
    Raises `DeclarationError` (a ValueError) for a length, size or alignment that is not positive.
    """
    if min(max_model_len, block_size, cp_world_size, alignment) < 1:
        raise DeclarationError(
            "ComputeSlotMapping: the width of a block table needs positive numbers, not "
            f"{max_model_len=}, {block_size=}, {cp_world_size=}, {alignment=}"
        )
    blocks = -(-max_model_len // (block_size * cp_world_size))
    step = alignment // math.gcd(alignment, block_size)
    return -(-blocks // step) * step


def compute_slot_mapping(
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    kv_cache_block_size: int,
    total_cp_world_size: int = 1,
    total_cp_rank: int = 0,
    cp_kv_cache_interleave_size: int = 1,
) -> torch.Tensor:
    """Fill `slot_mapping` for the tokens of a step and return it.

    Never waits for the device, so values are not checked: query_start_loc must ascend to at most
    len(positions).
    Raises `BindingError` (a ValueError) for tensors or sizes that do not fit each other.
    """
    constants = _constants(
        kv_cache_block_size, total_cp_world_size, total_cp_rank, cp_kv_cache_interleave_size
    )
    num_reqs, num_tokens = query_start_loc.shape[0] - 1, positions.shape[0]
    if not (
        query_start_loc.dtype == block_table.dtype == torch.int32
        and positions.dtype == slot_mapping.dtype == torch.int64
        and block_table.dim() == 2
        and 0 <= num_reqs <= block_table.shape[0]
        and num_tokens <= slot_mapping.shape[0]
        and query_start_loc.is_contiguous()
        and positions.is_contiguous()
        and slot_mapping.is_contiguous()
        and (block_table.stride(1) == 1 or not num_reqs)
    ):
        tensors = (query_start_loc, positions, block_table, slot_mapping)
        raise BindingError(
            "ComputeSlotMapping: needs contiguous query_start_loc int32 [Q+1], positions int64 [T] "
            "and slot_mapping int64 [T or more], and block_table int32 [Q or more, width] with "
            "columns side by side; got " + ", ".join(f"{t.dtype} {list(t.shape)}" for t in tensors)
        )
    arguments = _arguments(query_start_loc, positions, block_table, slot_mapping)
    _compute_slot_mapping[(num_reqs + 1,)](*arguments.values(), **constants)
    return slot_mapping


def slot_mapping_launch(
    query_start_loc: Any,
    positions: Any,
    block_table: Any,
    slot_mapping: Any,
    *,
    kv_cache_block_size: int,
    total_cp_world_size: int = 1,
    total_cp_rank: int = 0,
    cp_kv_cache_interleave_size: int = 1,
) -> dict[str, Any]:
    """The launch that `compute_slot_mapping` makes of these arguments: tensors, or stand-ins."""
    constants = _constants(
        kv_cache_block_size, total_cp_world_size, total_cp_rank, cp_kv_cache_interleave_size
    )
    return _arguments(query_start_loc, positions, block_table, slot_mapping) | constants


def _arguments(
    query_start_loc: Any, positions: Any, block_table: Any, slot_mapping: Any
) -> dict[str, Any]:
    """Everything but the constants, in the order of the kernel."""
    return {
        "num_tokens": positions.shape[0],
        "max_num_tokens": slot_mapping.shape[0],
        "query_start_loc_ptr": query_start_loc,
        "positions_ptr": positions,
        "block_table_ptr": block_table,
        "block_table_stride": block_table.stride(0),
        "slot_mapping_ptr": slot_mapping,
    }
