"""Plain Python twin of CompressedSlotMapping: one token after the other."""

from __future__ import annotations

import numpy as np


def compressed_slot_mapping_reference(
    slot_mapping: np.ndarray,
    query_start_loc: np.ndarray,
    seq_lens: np.ndarray,
    block_table: np.ndarray,
    *,
    block_size: int,
    ratio: int,
    world_size: int = 1,
    interleave: int = 1,
    length: int | None = None,
) -> np.ndarray:
    """The whole output (int64 [length], by default as long as slot_mapping)."""
    out = np.full(len(slot_mapping) if length is None else length, -1, np.int64)
    for req, row in enumerate(block_table.tolist()):
        first, end = int(query_start_loc[req]), int(query_start_loc[req + 1])
        for token in range(first, end):
            position = int(seq_lens[req]) - (end - token)
            if position < 0 or (position + 1) % ratio or slot_mapping[token] == -1:
                continue
            # Turns of `interleave` tokens go round the ranks: whole turns before this one, then
            # what has passed of this one.
            turn, passed = divmod(position, interleave)
            local = turn // world_size * interleave + passed
            block, entry = divmod(local // ratio, block_size)
            out[token] = row[block] * block_size + entry
    return out
