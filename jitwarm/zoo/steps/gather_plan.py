"""How DeepSeek-V4's prefill attention cuts the prefill requests of a step: into chunks whose keys
are gathered into one workspace.

A chunk lays its requests out one behind another, each in as many rows as its longest needs: first
its compressed states, then its window. The workspace is sized for 4 requests of the largest kind.
Chunks are made of whole groups of 4 requests (the last may be short) and take as many groups as
fit. So the slices of a chunk start at a multiple of 4 requests behind the decodes: the gather
lengths, which count prefills only, are aligned in every chunk, the sequence lengths only where the
number of decode requests is a multiple of 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GROUP = 4  # requests


@dataclass(frozen=True, slots=True)
class GatherChunk:
    """Prefill requests `[first, last)` with their new tokens `[start, stop)`, both counted from the
    first prefill.

    `states` is the longest request's length in compressed states, `slots` the rows of each request.
    """

    first: int
    last: int
    start: int
    stop: int
    states: int
    slots: int


def workspace_rows(ratio: int, window: int, max_model_len: int, max_tokens: int) -> int:
    """Rows of the workspace of layers with this compress ratio (0 or 1: they compress nothing)."""
    return GROUP * (_states(max_model_len, ratio) + window + max_tokens)


def gather_plan(
    query_lens: Sequence[int], seq_lens: Sequence[int], *, ratio: int, window: int, rows: int
) -> Iterator[GatherChunk]:
    """The chunks of prefill requests with these new and total tokens, in a workspace of `rows`.

    A group is never split: `rows` is at least what `workspace_rows` says.
    """
    states = [_states(length, ratio) for length in seq_lens]
    # A window reaches window - 1 tokens back from the first new one.
    gathered = [
        new + min(total - new, window - 1) for new, total in zip(query_lens, seq_lens, strict=True)
    ]
    first = start = 0
    while first < len(query_lens):
        last, most_states, most_gathered = first, 0, 0
        while last < len(query_lens):
            end = min(last + GROUP, len(query_lens))
            longest = max(most_states, *states[last:end])
            widest = max(most_gathered, *gathered[last:end])
            if last > first and (end - first) * (longest + widest) > rows:
                break
            last, most_states, most_gathered = end, longest, widest
        stop = start + sum(query_lens[first:last])
        yield GatherChunk(first, last, start, stop, most_states, most_states + most_gathered)
        first, start = last, stop


def _states(tokens: int, ratio: int) -> int:
    return tokens // ratio if ratio > 1 else 0
