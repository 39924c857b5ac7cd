"""Plain numpy reference of CorrectAttnCPOut and of the row mask that goes before it."""

from __future__ import annotations

import numpy as np


def correct_attn_cp_out(
    outputs: np.ndarray, lses: np.ndarray, index: int, *, is_base_e: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Corrected outputs [B, H, D] in float64 (not yet rounded to the output dtype) and the merged
    lse [B, H].
    """
    exp, log = (np.exp, np.log) if is_base_e else (np.exp2, np.log2)
    wide = lses.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        usable = np.where(np.isnan(wide) | (wide == np.inf), -np.inf, wide)
        top = usable.max(axis=0)
        top = np.where(top == -np.inf, 0.0, top)
        merged = top + log(exp(usable - top).sum(axis=0))
        distance = wide[index] - merged
        distance = np.where(np.isnan(distance) | (distance == np.inf), -np.inf, distance)
        factor = exp(distance)[..., None]
        corrected = np.where(factor == 0.0, 0.0, outputs.astype(np.float64) * factor)
    return corrected, merged


def mask_empty_shards(
    lse: np.ndarray, query_start_loc: list[int], seq_lens: list[int]
) -> np.ndarray:
    """`lse` [B, H] with the rows of empty requests, and the rows of no request, set to -inf."""
    out = lse.copy()
    for row in range(len(lse)):
        owners = [
            q for q in range(len(seq_lens)) if query_start_loc[q] <= row < query_start_loc[q + 1]
        ]
        if not owners or seq_lens[owners[0]] == 0:
            out[row] = -np.inf
    return out
