"""Plain numpy reference of both twins of StableTopKFromGatheredCandidates.

The twins agree on candidates with ordinary scores. They differ in

* the order of a row: the Triton twin sorts, the CuTe DSL twin gives a set (`assert_same_sets`);
* zeros: equal for Triton; +0 above -0 for CuTe DSL;
* NaN with a valid id: for Triton below every number; for CuTe DSL above +inf where its sign bit is
  0 and below -inf where it is 1, the payload deciding between such NaNs. Above invalid candidates
  in both.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Semantics = Literal["triton", "cutedsl"]


def stable_topk(gathered: np.ndarray, topk: int, semantics: Semantics = "triton") -> np.ndarray:
    """The ids of the best `topk` of the pairs (score, id) in float32 [R, N, 2]: int32 [R, topk].

    Best first, equal scores by lowest id; a negative id is invalid; -1 behind the last valid one.
    """
    out = np.full((len(gathered), topk), -1, np.int32)
    for row, pairs in zip(out, gathered, strict=True):
        scores, ids = pairs[pairs[:, 1] >= 0].T
        best = np.lexsort((ids, -rank(np.ascontiguousarray(scores), semantics)))[:topk]
        row[: len(best)] = ids[best]
    return out


def rank(scores: np.ndarray, semantics: Semantics) -> np.ndarray:
    """Numbers that order float32 scores, higher is better: float64, so that each fits exactly."""
    if semantics == "triton":
        lowest = np.float64(np.finfo(np.float32).min) * 4
        numbers = np.clip(scores.astype(np.float64), lowest / 2, -lowest / 2)  # infinities fit in
        return np.where(np.isnan(scores), lowest, numbers) + 0.0
    bits = scores.view(np.uint32)
    negative = bits >> 31 == 1
    return np.where(negative, ~bits, bits | np.uint32(1 << 31)).astype(np.float64)


def assert_same_sets(found: np.ndarray, expected: np.ndarray) -> None:
    """Each row has the same ids, in any order; ids that occur twice must do so in both."""
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(expected, axis=1))
