"""Plain reference of CombineTopkSwaIndices, one token at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Layer:
    """What all tokens share: the selection, the window, and the layout of the workspace."""

    top_k: int = 8
    compress_ratio: int = 4
    window_size: int = 16
    slots_per_request: int = 60
    compressed_slots: int = 20
    max_image_tokens: int = 0


def combine_topk_swa_indices(
    topk_indices: np.ndarray,
    query_start_loc: np.ndarray,
    seq_lens: np.ndarray,
    gather_lens: np.ndarray,
    layer: Layer,
    left_visible: np.ndarray | None = None,
    right_visible: np.ndarray | None = None,
) -> tuple[list[list[int]], np.ndarray]:
    """The row of each token as far as it is written, and lens int32 [T]."""
    rows: list[list[int]] = []
    for request, seq_len in enumerate(map(int, seq_lens)):
        first_slot = layer.slots_per_request * request
        gather_start = seq_len - int(gather_lens[request])
        query_len = int(query_start_loc[request + 1] - query_start_loc[request])
        for position in range(seq_len - query_len, seq_len):
            token = len(rows)
            left = 0 if left_visible is None else int(left_visible[token])
            right = 0 if right_visible is None else int(right_visible[token])
            selected = min(max((position + 1) // max(1, layer.compress_ratio), 0), layer.top_k)
            row = [
                first_slot + int(state) if 0 <= state < layer.compressed_slots else -1
                for state in topk_indices[token, :selected]
            ]
            window_start = position - (layer.window_size - 1) - max(left - layer.window_size + 1, 0)
            window_start = max(window_start, 0, gather_start)
            window_region = first_slot + layer.compressed_slots
            row += [
                window_region + seen - gather_start
                for seen in range(window_start, position + right + 1)
            ]
            rows.append(row)
    return rows, np.array([len(row) for row in rows], np.int32)
