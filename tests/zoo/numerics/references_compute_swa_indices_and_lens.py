"""Plain Python twin of ComputeSWAIndicesAndLens: one token after the other."""

from __future__ import annotations

import numpy as np


def swa_reference(
    token_to_req: np.ndarray,
    is_valid_token: np.ndarray,
    query_start_loc: np.ndarray,
    seq_lens: np.ndarray,
    block_table: np.ndarray,
    replay_start: np.ndarray,
    *,
    num_tokens: int,
    token_offset: int,
    window_size: int,
    block_size: int,
    index_width: int,
    left_visible: np.ndarray | None = None,
    right_visible: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """indices [num_tokens, 1, index_width] and lens [num_tokens], int32."""
    indices = np.full((num_tokens, 1, index_width), -1, np.int32)
    lens = np.zeros(num_tokens, np.int32)
    for row in range(num_tokens):
        token = token_offset + row
        if not is_valid_token[token]:
            continue
        req = int(token_to_req[token])
        position = int(seq_lens[req]) - (int(query_start_loc[req + 1]) - token)
        left = 0 if left_visible is None else int(left_visible[token])
        right = 0 if right_visible is None else int(right_visible[token])
        reach = (window_size - 1) + max(left - (window_size - 1), 0)
        start = max(position - reach, 0, int(replay_start[req]))
        lens[row] = position + right + 1 - start
        places = range(start, position + right + 1)[:index_width]
        indices[row, 0, : len(places)] = [
            int(block_table[req, place // block_size]) * block_size + place % block_size
            for place in places
        ]
    return indices, lens
