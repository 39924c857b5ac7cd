"""Where the images of a step are: how many tokens of its own image each token sees on either side.

Generated from the traffic, the same for a batch in every process: a prefill of an even number of
new tokens, 16 or more, has one image in its middle half. Decodes have none, and a span never leaves
the new tokens of its request.
"""

from __future__ import annotations

import numpy as np

from jitwarm.traffic import Batch

SHORTEST = 16  # new tokens of a prefill with an image


def visible_counts(
    batch: Batch, max_image_tokens: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int32]] | None:
    """Counts int32 [2, tokens]: tokens of the same image before, and behind, each token of a batch.

    None for a batch without an image. An image has at most `max_image_tokens`.
    """
    images = []
    start = batch.num_decode_tokens
    for new in batch.prefill_chunks:
        if new >= SHORTEST and new % 2 == 0:
            images.append((start + new // 4, min(new // 2, max_image_tokens)))
        start += new
    if not images:
        return None
    counts = np.zeros((2, batch.num_tokens), dtype=np.int32)
    for first, length in images:
        place = np.arange(length, dtype=np.int32)
        counts[0, first : first + length] = place
        counts[1, first : first + length] = length - 1 - place
    return counts
