"""How a sparse indexer cuts the prefill requests of a step: into chunks of requests, and a large
one into slices of queries.

The scores of a chunk are a float32 matrix of its queries times its context, so both are bounded by
a scratch buffer. Consecutive requests share a chunk while the matrix fits; a request too large for
it alone is sliced along its queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# 512 MiB of float32 scores, the default bound of the field's sparse indexers.
MAX_SCORES = 512 * 2**20 // 4


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Requests `[first, last)` of the prefill part of a batch, and the query slices `[start, stop)`
    of them, chunk-relative.
    """

    first: int
    last: int
    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    slices: tuple[tuple[int, int], ...]


def prefill_chunks(
    query_lens: Sequence[int], seq_lens: Sequence[int], max_scores: int = MAX_SCORES
) -> Iterator[PrefillChunk]:
    """The chunks of prefill requests with these new tokens and keys (tokens, or states of some)."""
    first = 0
    while first < len(query_lens):
        last, queries, context = first + 1, query_lens[first], seq_lens[first]
        while (
            last < len(query_lens)
            and (queries + query_lens[last]) * (context + seq_lens[last]) <= max_scores
        ):
            queries += query_lens[last]
            context += seq_lens[last]
            last += 1
        # A compressing indexer has no key yet for a short prompt: such a chunk has no scores.
        rows = max(1, min(queries, max_scores // max(context, 1)))
        slices = tuple((start, min(start + rows, queries)) for start in range(0, queries, rows))
        yield PrefillChunk(
            first, last, tuple(query_lens[first:last]), tuple(seq_lens[first:last]), slices
        )
        first = last


def most_keys(longest: int, max_scores: int = MAX_SCORES) -> int:
    """A bound on the keys of one chunk, if no request has more than `longest`.

    n requests share a chunk only if n times their keys fit the scores, and have n * longest keys at
    most; the smaller of the two is greatest where they meet.
    """
    return max(longest, math.isqrt(longest * max_scores))


def local_length(length: int, rank: int, world: int, interleave: int) -> int:
    """Tokens of a sequence of `length` that `rank` holds when `world` ranks take turns of
    `interleave` tokens.
    """
    whole, rest = divmod(length, world * interleave)
    return whole * interleave + min(max(rest - rank * interleave, 0), interleave)
