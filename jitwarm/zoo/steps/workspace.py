"""Where the rows of a gathered prefill chunk come from, and where they go: of each request first
its states, then its window, in as many rows as the longest request of the chunk needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from jitwarm.traffic import Batch
from jitwarm.zoo.steps.block_tables import BlockTable
from jitwarm.zoo.steps.gather_plan import GatherChunk
from jitwarm.zoo.steps.paged_slots import slots_at


@dataclass(frozen=True, slots=True)
class Workspace:
    """`rows` in all; cache slots and places in the workspace, int64, of states and of windows."""

    rows: int
    state_slots: torch.Tensor
    state_places: torch.Tensor
    window_slots: torch.Tensor
    window_places: torch.Tensor


def workspace(
    batch: Batch,
    chunk: GatherChunk,
    ratio: int,
    window: int,
    window_table: BlockTable,
    state_table: BlockTable | None,
) -> Workspace:
    """The workspace of a chunk; everything is known on the host.

    A window begins `window` - 1 tokens before the first new one (ComputePrefillMetadata).
    """
    kinds = range(2)  # states, windows
    row_of: list[list[Any]] = [[] for _ in kinds]
    position: list[list[Any]] = [[] for _ in kinds]
    place: list[list[Any]] = [[] for _ in kinds]
    for request in range(chunk.first, chunk.last):
        new, context = batch.prefill_chunks[request], batch.prefill_contexts[request]
        total, base = new + context, (request - chunk.first) * chunk.slots
        first = context - min(context, window - 1)
        gathered = np.arange(first, total, dtype=np.int64)
        states = np.arange(total // ratio if state_table else 0, dtype=np.int64)
        for kind, (where, offset) in enumerate(((states, 0), (gathered, chunk.states - first))):
            row_of[kind].append(np.full(len(where), batch.num_decodes + request, dtype=np.int64))
            position[kind].append(where)
            place[kind].append(base + offset + where)
    device = window_table.blocks.device

    def tensor(parts: list[Any]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(device)

    rows, positions = [tensor(r) for r in row_of], [tensor(p) for p in position]
    state_slots = positions[0]
    if state_table is not None:
        size = state_table.block_size // ratio
        state_slots = slots_at(state_table.blocks, rows[0], positions[0], size)
    return Workspace(
        (chunk.last - chunk.first) * chunk.slots,
        state_slots,
        tensor(place[0]),
        slots_at(window_table.blocks, rows[1], positions[1], window_table.block_size),
        tensor(place[1]),
    )
