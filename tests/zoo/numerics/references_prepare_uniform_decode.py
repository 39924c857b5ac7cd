"""Plain numpy twin of PrepareUniformDecode."""

from __future__ import annotations

import numpy as np


def uniform_decode_reference(
    seq_lens: np.ndarray, block_table: np.ndarray, width: int, tokens_per_request: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decode sequence lengths, expanded table and decode lengths of the batch's tokens."""
    last_first = np.arange(tokens_per_request)[
        ::-1
    ]  # tokens of the request that come after each of its tokens
    visible = np.maximum(seq_lens[:, None] - last_first[None, :], 0).reshape(-1).astype(np.int32)
    table = np.repeat(block_table[: len(seq_lens), :width], tokens_per_request, axis=0)
    return visible, table, np.ones(len(visible), dtype=np.int32)
