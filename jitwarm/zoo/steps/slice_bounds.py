"""Which slices `prefill_chunks` can make under the limits of an engine.

A chunk of several requests fits the scores whole: one slice from 0 to its last query. So does one
of a request alone, unless its queries times its keys exceed them: then each slice has as many rows
as fit beside the keys, and the last one what is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitwarm.zoo.steps.limits import Limits
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES

CLASSES = (1, 2, 16)  # the smallest numbers that are one, divisible by 16, and neither
PER_16_BYTES = 4  # int32


def slice_classes(
    limits: Limits, *, aligned: bool, ratio: int = 1, max_scores: int = MAX_SCORES
) -> list[tuple[int, int]]:
    """A smallest (start, stop) of each pair of classes of integers, in order: Triton sees of a
    bound whether it is 1 and whether 16 divides it.

    Of chunks whose first row is a multiple of 4 of the batch's (`aligned`), or of the others. Keys
    are states of `ratio` tokens; chunks without a state launch nothing.
    """
    rows = range(0 if aligned else 1, limits.prefills)
    if limits.longest < ratio or not rows:
        return []
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for stop in CLASSES:
        for behind in rows:
            if (behind % PER_16_BYTES == 0) == aligned and is_one_slice(
                stop, behind, limits, ratio, max_scores
            ):
                found[16, stop] = 0, stop
                break
    # The first row has the most room behind it, and a later slice has its chunk for itself.
    tokens = limits.tokens - rows.start
    for length in range(
        fewest_rows(limits.longest, ratio, max_scores), min(tokens, max_scores + 1)
    ):
        most = min(tokens, most_queries(length, limits.longest, ratio, max_scores))
        for start in range(length, most, length):
            _add_later_slices(found, start, min(start + length, most))
    return [bounds for _, bounds in sorted(found.items())]


def is_one_slice(queries: Any, behind: Any, limits: Limits, ratio: int, max_scores: int) -> Any:
    """Whether a chunk of so many queries, with a state or more and behind so many rows of a batch,
    can be one slice. Whole numbers or arrays of them.
    """
    requests = limits.rows - behind
    fits = queries * fewest_states(queries, requests, limits.longest, ratio) <= max_scores
    has_room = (behind + queries <= limits.tokens) & (queries <= requests * limits.longest)
    # In front are decodes, or prefills in a chunk of their own.
    decodes = limits.query_len * behind + queries <= limits.tokens
    return fits & has_room & (decodes | _is_parted(queries, behind, limits, ratio, max_scores))


def _is_parted(queries: Any, behind: Any, limits: Limits, ratio: int, max_scores: int) -> Any:
    """Whether `behind` prefills in front can leave no room in their chunk for the next request.

    They take all tokens that there are and the longest contexts, or as many of both as one chunk
    holds; the request has as many queries and states as its own chunk admits. Only with drafts does
    it matter, and for contexts of four tokens or fewer, whose states come in steps, it is a bound.
    """
    longest, most = limits.longest, limits.longest // ratio
    states = max_scores // queries
    own = np.minimum(np.minimum(queries, longest), (states + 1) * ratio - 1)
    others = queries - own - (limits.rows - behind - 1) * (ratio - 1)
    own_states = np.minimum(most, states - np.maximum(0, -(-others // ratio)))
    front = np.minimum(limits.tokens - queries, behind * longest)
    return (behind > 0) & ((front + own) * (behind * most + own_states) > max_scores)


def fewest_states(queries: Any, requests: Any, longest: int, ratio: int) -> Any:
    """The fewest states, but one, of up to `requests` prompts with so many queries in all.

    Each prompt falls short of its next state; one of the longest context by less. Whole numbers or
    arrays of them.
    """
    most, loss = longest // ratio, ratio - 1 - longest % ratio
    short = queries - requests * (ratio - 1)
    states = np.maximum(1, -(-short // ratio))
    return np.maximum(states, -(-(short - loss * requests * (most - 1)) // (ratio - loss)))


def fewest_rows(longest: int, ratio: int, max_scores: int) -> int:
    """The rows of a slice beside the longest context."""
    return max(max_scores // (longest // ratio), 1)


def most_queries(rows: int, longest: int, ratio: int, max_scores: int) -> int:
    """The most queries of a request whose slices have `rows`; 0 if no number of states gives that,
    because quotients of the bound step over it.
    """
    states = longest // ratio
    if rows > 1:
        states = min(states, max_scores // rows)
    if not states or max(max_scores // states, 1) != rows:
        return 0
    return min(longest, (states + 1) * ratio - 1)


def _add_later_slices(found: dict[tuple[int, int], tuple[int, int]], start: int, last: int) -> None:
    """Slices from `start`, which is not the chunk's first, to any end up to `last`."""
    begins = 1 if start == 1 else 2 if start % 16 else 16
    divisible = -(-(start + 1) // 16) * 16
    other = start + 1 if (start + 1) % 16 else start + 2
    for ends, stop in ((16, divisible), (2, other)):
        if stop <= last:
            found.setdefault((begins, ends), (start, stop))
