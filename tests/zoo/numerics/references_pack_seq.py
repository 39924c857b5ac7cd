"""Plain numpy twin of PackSeq."""

from __future__ import annotations

from typing import Any

import numpy as np


def pack_reference(x: np.ndarray, lengths: list[int], max_len: int, pad: Any) -> np.ndarray:
    """Copy the rows of each request, one by one, into a block [B, max_len, ...] full of `pad`."""
    out = np.full((len(lengths), max_len, *x.shape[1:]), pad, dtype=x.dtype)
    row = 0
    for seq, length in enumerate(lengths):
        kept = min(length, max_len)
        out[seq, :kept] = x[row : row + kept]
        row += length
    return out
