"""Plain reference of ConvertReqIndexToGlobalIndex, one token at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Layout:
    """How the physical rows of a cache are laid out and spread over the ranks."""

    block_size: int = 64
    block_stride_rows: int = 64
    world_size: int = 1
    rank: int = 0
    interleave: int = 1


@dataclass(frozen=True)
class Prefill:
    """Which rows read the gathered workspace:

    request [T] (-1: a decode row), start [P], rows per rank.
    """

    request: np.ndarray
    start: np.ndarray
    rank_stride: int


def physical_row(
    token: int, table_row: np.ndarray, layout: Layout, prefill: tuple[int, int] | None
) -> int:
    """The physical row of one token, or -1.

    `prefill` is (workspace start, rows per rank) in a prefill row.
    """
    turn, world = layout.interleave, layout.world_size
    owner = token // turn % world
    local = token // (world * turn) * turn + token % turn
    block = local // layout.block_size
    if token < 0 or block >= len(table_row):
        return -1
    if prefill is not None:
        start, rank_stride = prefill
        return owner * rank_stride + start + local
    if owner != layout.rank:
        return -1
    return int(table_row[block]) * layout.block_stride_rows + local % layout.block_size


def convert(
    req_id: np.ndarray,
    block_table: np.ndarray,
    token_indices: np.ndarray,
    layout: Layout,
    *,
    idx_mapping: np.ndarray | None = None,
    prefill: Prefill | None = None,
    compact: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Physical rows [T, K] and the number of valid ones a row [T]."""
    rows = np.full(token_indices.shape, -1, np.int32)
    for t, tokens in enumerate(token_indices):
        request = int(req_id[t])
        if idx_mapping is not None:
            request = max(int(idx_mapping[request]), 0)
        workspace = None
        if prefill is not None and prefill.request[t] >= 0:
            workspace = (int(prefill.start[prefill.request[t]]), prefill.rank_stride)
        found = [physical_row(int(x), block_table[request], layout, workspace) for x in tokens]
        if compact:
            found = [row for row in found if row >= 0]
        rows[t, : len(found)] = found
    return rows, (rows >= 0).sum(axis=1).astype(np.int32)
