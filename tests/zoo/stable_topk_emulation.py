"""The steps of stable_topk_radix.py on numpy: passes, bins, early stop and append bookkeeping.

It shows that the algorithm is right where no kernel can run, and what each pass of a kernel that
does run should find.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DIGIT_BITS = 11
BINS = 1 << DIGIT_BITS


@dataclass(frozen=True)
class Pass:
    """What one pass finds: the digit at `shift`, the keys above its bin, the keys in it."""

    shift: int
    digit: int
    above: int
    equal: int


def keys_of(pairs: np.ndarray) -> np.ndarray:
    """The 64-bit keys of float32 [N, 2]; 0 where the id is negative."""
    scores, ids = np.ascontiguousarray(pairs.T)
    bits = scores.view(np.uint32)
    ordered = np.where(bits >> 31 == 1, ~bits, bits | np.uint32(1 << 31))
    identity = ids.astype(np.int32)
    low = ~identity.view(np.uint32)
    keys = ordered.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
    return np.where(identity < 0, np.uint64(0), keys)


def search(keys: np.ndarray, topk: int) -> tuple[np.uint64, np.uint64, int, list[Pass]]:
    """The known bits of the threshold (mask and value), the keys above it, and every pass."""
    known = threshold = np.uint64(0)
    kept, shift, passes = 0, 64 - DIGIT_BITS, []
    while True:
        counted = keys[(keys != 0) & (keys & known == threshold)]
        digits = counted >> np.uint64(shift) & np.uint64(BINS - 1)
        bins = np.bincount(digits.astype(np.int64), minlength=BINS)
        above, wanted = 0, topk - kept
        for digit in range(BINS - 1, -1, -1):
            if above < wanted and (above + bins[digit] >= wanted or digit == 0):
                found = Pass(shift, digit, above, int(bins[digit]))
            above += int(bins[digit])
        passes.append(found)
        threshold |= np.uint64(found.digit) << np.uint64(shift)
        known |= np.uint64(BINS - 1) << np.uint64(shift)
        kept += found.above
        if found.equal <= topk - kept or shift == 0:
            return known, threshold, kept, passes
        shift = max(shift - DIGIT_BITS, 0)


def select(
    pairs: np.ndarray, topk: int, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, list[Pass]]:
    """The row that a block writes for float32 [N, 2], appended in an order that `rng` picks."""
    keys = keys_of(pairs)
    known, threshold, kept, passes = search(keys, topk)
    row, appended = np.full(topk, -1, np.int32), [0, 0]
    for key in keys if rng is None else rng.permutation(keys):
        if key != 0 and key & known >= threshold:
            is_equal = int(key & known == threshold)
            slot = is_equal * kept + appended[is_equal]
            appended[is_equal] += 1
            if slot < topk:
                assert row[slot] == -1, "two entries in one slot"
                row[slot] = np.uint32(~key & np.uint64(2**32 - 1)).view(np.int32)
    return row, passes
