"""Plain reference of BuildPrefillChunkMetadata, one token at a time."""

from __future__ import annotations

import numpy as np


def local_length(length: int, rank: int, world_size: int, interleave: int) -> int:
    """How many of the first `length` states one rank holds, counted one by one."""
    return sum(state // interleave % world_size == rank for state in range(length))


def build_prefill_chunk_metadata(
    query_start_loc: np.ndarray,
    uncompressed_seq_lens: np.ndarray,
    cu_compressed_seq_lens: np.ndarray,
    row_starts: np.ndarray,
    slice_start: int,
    slice_stop: int,
    *,
    ratio: int,
    rank: int = 0,
    world_size: int = 1,
    interleave: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """token_to_seq [cu[-1]], ks and ke [slice_stop - slice_start]."""
    token_to_seq = np.repeat(
        np.arange(len(uncompressed_seq_lens), dtype=np.int32), np.diff(cu_compressed_seq_lens)
    )
    starts, ends = [], []
    for q, seq_len in enumerate(uncompressed_seq_lens):
        first, end = int(query_start_loc[q]), int(query_start_loc[q + 1])
        for token in range(first, end):
            if slice_start <= token < slice_stop:
                length = (int(seq_len) - (end - token) + 1) // ratio
                starts.append(int(row_starts[q]))
                ends.append(starts[-1] + local_length(length, rank, world_size, interleave))
    return token_to_seq, np.array(starts, np.int32), np.array(ends, np.int32)
