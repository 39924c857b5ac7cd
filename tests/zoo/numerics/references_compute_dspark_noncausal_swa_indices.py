"""Plain Python twin of ComputeDSparkNoncausalSWAIndices: one token after the other."""

from __future__ import annotations

import numpy as np


def dspark_reference(
    token_to_req: np.ndarray,
    is_valid_token: np.ndarray,
    query_start_loc: np.ndarray,
    seq_lens: np.ndarray,
    block_table: np.ndarray,
    *,
    num_tokens: int,
    token_offset: int,
    window_size: int,
    num_speculative_tokens: int,
    block_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """indices [num_tokens, 1, width] and lens [num_tokens], int32."""
    width = 64 * -(-(max(window_size, 0) + max(num_speculative_tokens, 0)) // 64)
    indices = np.full((num_tokens, 1, width), -1, np.int32)
    lens = np.zeros(num_tokens, np.int32)
    for row in range(num_tokens):
        if not is_valid_token[token_offset + row]:
            continue
        req = int(token_to_req[token_offset + row])
        context = int(seq_lens[req]) - int(query_start_loc[req + 1] - query_start_loc[req])
        visible = range(max(context - window_size, 0), int(seq_lens[req]))
        lens[row] = visible.stop - visible.start
        places = visible[:width]
        indices[row, 0, : len(places)] = [
            int(block_table[req, place // block_size]) * block_size + place % block_size
            for place in places
        ]
    return indices, lens
