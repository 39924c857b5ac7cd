"""Plain reference of ComputePrefillMetadata, one request at a time."""

from __future__ import annotations

import numpy as np


def compute_prefill_metadata(
    seq_lens: np.ndarray,
    query_start_loc: np.ndarray,
    replay_start: np.ndarray,
    num_decodes: int,
    window_size: int,
) -> np.ndarray:
    """How many rows of context and query each prefill request gathers, int32 [P]."""
    gathered = []
    for request in range(num_decodes, len(seq_lens)):
        query_len = int(query_start_loc[request + 1] - query_start_loc[request])
        context = max(int(seq_lens[request]) - query_len, 0)
        visible = max(context - int(replay_start[request]), 0)
        gathered.append(query_len + min(visible, window_size - 1))
    return np.array(gathered, np.int32)
