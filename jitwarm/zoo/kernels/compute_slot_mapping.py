"""ComputeSlotMapping: the KV-cache slot of each token of a step, on this rank of a decode-context-parallel (DCP) group.

For request q and its tokens i in [query_start_loc[q], query_start_loc[q+1]), with position p, block size B, world W, interleave I:

    block = p // (B*W),  o = p % (B*W),  mine = (o // I) % W == rank
    slot_mapping[i] = block_table[q, block]*B + (o // (I*W))*I + o % I   if mine else -1

Entries [num_tokens, len(slot_mapping)) are set to -1, where num_tokens is the length of `positions`. Entries from
query_start_loc[-1] to num_tokens are not written, where the two differ.

Shapes: query_start_loc int32 [Q+1], positions int64 [num_tokens], block_table int32 [Q or more, width], slot_mapping int64
[num_tokens or more]. Q = 0 is legal. The table row of a request is its index in the batch.
Limits: positions below width*B*W; a negative position gives -1. Offsets and slots are 64-bit. Token counts below 2**31.

Callers and reachable classes
-----------------------------
Each block table (one per KV-cache group) computes the mapping once a step.

| argument | passed by the model | reachable classes |
|---|---|---|
| query_start_loc_ptr | `query_start_loc[:num_reqs + 1]`: from the start of a larger buffer, int32 | aligned |
| positions_ptr | `positions[:num_tokens]`: from the start of a larger buffer, int64 | aligned |
| block_table_ptr | the group's whole table, int32 | aligned |
| slot_mapping_ptr | the group's whole buffer, int64 | aligned |
| num_tokens, max_num_tokens | any | i32, unspecialised |
| block_table_stride | width of the group's table, fixed at construction | one class: 16, 2 or 1 by that width |
| the four upper-case values | fixed at construction of the block table | one set a group and rank |

By the width rule the stride is a multiple of 128 // gcd(128, B): class 16 for blocks of 1 to 8 tokens, else by the model length.
"""

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

TABLE_ALIGNMENT = 128  # tokens; the width of a table covers a multiple of it
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
    if req == tl.num_programs(0) - 1:  # one program more than there are requests: the padding
        pad_at = num_tokens
        while pad_at < max_num_tokens:
            index = pad_at + lanes
            tl.store(
                slot_mapping_ptr + index,
                tl.full((BLOCK_SIZE,), PAD_ID, tl.int64),
                mask=index < max_num_tokens,
            )
            pad_at += BLOCK_SIZE
    else:
        VIRTUAL_BLOCK: tl.constexpr = KV_CACHE_BLOCK_SIZE * TOTAL_CP_WORLD_SIZE
        TURN: tl.constexpr = CP_KV_CACHE_INTERLEAVE_SIZE * TOTAL_CP_WORLD_SIZE
        table_ptr = block_table_ptr + req.to(tl.int64) * block_table_stride
        at = tl.load(query_start_loc_ptr + req)
        end = tl.load(query_start_loc_ptr + req + 1)
        while at < end:
            index = at + lanes
            in_query = index < end
            position = tl.load(positions_ptr + index, mask=in_query, other=0)
            block = position // VIRTUAL_BLOCK
            offset = position - block * VIRTUAL_BLOCK
            mine = (position >= 0) & (
                (offset // CP_KV_CACHE_INTERLEAVE_SIZE) % TOTAL_CP_WORLD_SIZE == TOTAL_CP_RANK
            )
            number = tl.load(table_ptr + block, mask=in_query & mine, other=0).to(tl.int64)
            local = (
                offset // TURN
            ) * CP_KV_CACHE_INTERLEAVE_SIZE + offset % CP_KV_CACHE_INTERLEAVE_SIZE
            slot = tl.where(mine, number * KV_CACHE_BLOCK_SIZE + local, PAD_ID)
            tl.store(slot_mapping_ptr + index, slot, mask=in_query)
            at += BLOCK_SIZE


@functools.lru_cache(maxsize=64, typed=True)
def _constants(block_size: int, world_size: int, rank: int, interleave: int) -> dict[str, int]:
    """The compile-time arguments of a launch, the same for the declaration and for `compute_slot_mapping`."""
    if min(block_size, world_size, interleave) < 1 or not 0 <= rank < world_size:
        raise BindingError(
            "ComputeSlotMapping: block size, world size and interleave must be 1 or more and the rank one of the world, "
            f"not {block_size}, {world_size}, {interleave} and {rank}"
        )
    if block_size % interleave:
        raise BindingError(
            f"ComputeSlotMapping: a block of {block_size} tokens does not hold whole turns of {interleave}: "
            "choose an interleave that divides the block size"
        )
    return {
        "KV_CACHE_BLOCK_SIZE": block_size,
        "TOTAL_CP_WORLD_SIZE": world_size,
        "TOTAL_CP_RANK": rank,
        "CP_KV_CACHE_INTERLEAVE_SIZE": interleave,
        **_TILE,
    }


@declare(_compute_slot_mapping)
def ComputeSlotMapping(  # noqa: N802 - the name under which the kernel registers
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
    max_model_len: int, block_size: int, cp_world_size: int = 1, *, alignment: int = TABLE_ALIGNMENT
) -> int:
    """Blocks in a row of a group's block table: enough for `max_model_len` tokens spread over the world.

    width * block_size is a multiple of `alignment` tokens; `alignment=1` is for state groups, which are not rounded.
    Raises `DeclarationError` (a ValueError) for a length, size or alignment that is not positive.
    """
    if min(max_model_len, block_size, cp_world_size, alignment) < 1:
        raise DeclarationError(
            "ComputeSlotMapping: the width of a block table needs positive numbers, not "
            f"{max_model_len=}, {block_size=}, {cp_world_size=}, {alignment=}"
        )
    step = alignment // math.gcd(alignment, block_size)
    return int(triton.cdiv(triton.cdiv(max_model_len, block_size * cp_world_size), step) * step)


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

    Never waits for the device, so values are not checked: query_start_loc must ascend to at most len(positions).
    Raises `BindingError` (a ValueError) for tensors or sizes that do not fit each other.
    """
    constants = _constants(
        kv_cache_block_size, total_cp_world_size, total_cp_rank, cp_kv_cache_interleave_size
    )
    num_reqs, num_tokens, max_num_tokens = (
        query_start_loc.shape[0] - 1,
        positions.shape[0],
        slot_mapping.shape[0],
    )
    if not (
        query_start_loc.dtype == block_table.dtype == torch.int32
        and positions.dtype == slot_mapping.dtype == torch.int64
        and 0 <= num_reqs <= block_table.shape[0]
        and num_tokens <= max_num_tokens
        and query_start_loc.is_contiguous()
        and positions.is_contiguous()
        and slot_mapping.is_contiguous()
        and block_table.stride(1) == 1
    ):
        raise BindingError(
            "ComputeSlotMapping: needs query_start_loc int32 [Q+1], positions int64 [T], block_table int32 [Q or more, width] and "
            "slot_mapping int64 [T or more], elements side by side; got "
            + ", ".join(
                f"{t.dtype} {list(t.shape)}"
                for t in (query_start_loc, positions, block_table, slot_mapping)
            )
        )
    _compute_slot_mapping[(num_reqs + 1,)](
        num_tokens,
        max_num_tokens,
        query_start_loc,
        positions,
        block_table,
        block_table.stride(0),
        slot_mapping,
        **constants,
    )
    return slot_mapping
