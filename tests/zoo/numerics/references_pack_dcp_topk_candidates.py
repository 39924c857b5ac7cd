"""Plain numpy reference of PackDCPTopkCandidates."""

from __future__ import annotations

import numpy as np


def pack_dcp_topk_candidates(
    logits: np.ndarray,
    topk_indices: np.ndarray,
    row_starts: np.ndarray | None,
    rank: int,
    world_size: int,
    interleave: int,
) -> np.ndarray:
    """(score, global token id) pairs, float32 [R, K, 2], of local top-k columns [R, K]; a negative
    column is empty.
    """
    local = np.maximum(topk_indices, 0).astype(np.int64)
    starts = np.zeros(len(local), np.int64) if row_starts is None else row_starts
    columns = np.minimum(local + starts[:, None], max(logits.shape[1] - 1, 0))
    scores = np.take_along_axis(logits, columns, axis=1)
    ids = local // interleave * (world_size * interleave) + rank * interleave + local % interleave
    empty = topk_indices < 0
    pairs = [np.where(empty, -np.inf, scores), np.where(empty, -1, ids).astype(np.float32)]
    return np.stack(pairs, axis=-1).astype(np.float32)
