"""The prefill of an indexer in torch: the query rows of each slice, request by request.

Engines score a slice against the keys of all requests of its chunk and mask; torch would compute
what it masks, so each request is scored against its own keys alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from jitwarm.zoo.steps.paged_slots import row_slots
from jitwarm.zoo.steps.step_buffers import ChunkTensors

# First and past-the-last key column of each query row of a slice, int32, as
# BuildPrefillChunkMetadata gives them.
Bounds = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class IndexerSlice:
    """Query rows [first, last) of the batch, all of one request: the slots int64 [S] of its keys,
    and how many of them each row sees, int32.
    """

    first: int
    last: int
    key_slots: torch.Tensor
    lengths: torch.Tensor


def indexer_slices(
    chunks: Sequence[ChunkTensors],
    bounds: Sequence[Bounds],
    *,
    blocks: torch.Tensor,
    block_size: int,
    first_row: int,
    first_token: int,
) -> Iterator[IndexerSlice]:
    """The slices of a step whose prefills begin at batch row `first_row` and token `first_token`.

    `blocks` int32 [rows, width] is the block table, with `block_size` keys a block; `bounds` are
    those of the slices of all chunks, in order.
    """
    remaining = iter(bounds)
    for chunk in chunks:
        own = chunk.chunk
        for start, stop in own.slices:
            starts, ends = next(remaining)
            begin = 0  # of the request, counted from the chunk's first token
            for index, (new, keys) in enumerate(zip(own.query_lens, own.seq_lens, strict=True)):
                first, last = max(begin, start), min(begin + new, stop)
                if first < last:
                    row = first_row + own.first + index
                    part = slice(first - start, last - start)
                    yield IndexerSlice(
                        first_token + first,
                        first_token + last,
                        row_slots(blocks[row : row + 1], keys, block_size)[0],
                        ends[part] - starts[part],
                    )
                begin += new
        first_token += sum(own.query_lens)


def made_up_bounds(chunks: Sequence[ChunkTensors], device: str) -> list[Bounds]:
    """Bounds of one key for every row of every slice, where no kernel may run."""
    bounds = []
    for chunk in chunks:
        for start, stop in chunk.chunk.slices:
            ends = torch.ones(stop - start, dtype=torch.int32, device=device)
            bounds.append((torch.zeros_like(ends), ends))
    return bounds
