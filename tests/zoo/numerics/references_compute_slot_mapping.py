"""Plain Python twin of ComputeSlotMapping: one token after the other."""

from __future__ import annotations

import numpy as np


def slot_mapping_reference(
    before: np.ndarray,
    query_start_loc: np.ndarray,
    positions: np.ndarray,
    block_table: np.ndarray,
    *,
    block_size: int,
    world_size: int = 1,
    rank: int = 0,
    interleave: int = 1,
) -> np.ndarray:
    """What becomes of the buffer `before` (int64).

    A rank's cache holds its tokens without gaps, so its share of a block is found by counting:
    turns of `interleave` tokens go round the ranks, and the k-th token that is ours in a stretch
    of block_size * world_size is entry k of the block.
    """
    out = before.copy()
    out[len(positions) :] = -1
    stretch = np.arange(block_size * world_size)
    owner = stretch // interleave % world_size
    entry = np.full(len(stretch), -1)
    entry[owner == rank] = np.arange(block_size)
    for req in range(len(query_start_loc) - 1):
        for token in range(query_start_loc[req], query_start_loc[req + 1]):
            block, offset = divmod(int(positions[token]), block_size * world_size)
            mine = positions[token] >= 0 and entry[offset] >= 0
            out[token] = int(block_table[req, block]) * block_size + entry[offset] if mine else -1
    return out
