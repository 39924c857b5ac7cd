"""Plain numpy twin of UnpackSeq."""

from __future__ import annotations

import numpy as np


def unpack_reference(packed: np.ndarray, lengths: list[int]) -> np.ndarray:
    """The first `lengths[b]` rows of each request b, one below the other."""
    rows = [packed[seq, :length] for seq, length in enumerate(lengths)]
    return (
        np.concatenate([packed[:0, 0], *rows])
        if packed.shape[1]
        else packed.reshape(0, *packed.shape[2:])
    )
