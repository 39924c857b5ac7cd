"""Scores of a sparse indexer, and the selection from them: torch where engines have kernels of
their own libraries.

score[t, s] = sum over index heads h of weight[t, h] * max(q[t, h] . k[s], 0).
"""

from __future__ import annotations

import torch

# Index heads of a block: the products of a block are kept, [8, T, S] in the queries' dtype.
HEADS = 8


def decode_scores(
    queries: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Scores float32 [B, L] of one query token a request.

    queries [B, h, d], weights [B, h], keys [B, L, d] of each request's own positions, lengths int32
    [B]: positions at or past it score -inf.
    """
    products = torch.relu(torch.bmm(queries, keys.transpose(1, 2)))
    scores = torch.bmm(weights[:, None, :], products)[:, 0].float()
    past = torch.arange(keys.shape[1], device=keys.device) >= lengths[:, None]
    return scores.masked_fill(past, -torch.inf)


def prefill_scores(
    queries: torch.Tensor,
    weights: torch.Tensor,
    keys: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
) -> torch.Tensor:
    """Scores float32 [T, S] of query tokens against the keys of all requests of their chunk.

    queries [T, h, d], weights [T, h], keys [S, d], starts and ends int32 [T]: columns outside
    [start, end) score -inf.
    """
    total = queries.new_zeros(queries.shape[0], keys.shape[0], dtype=torch.float32)
    for first in range(0, queries.shape[1], HEADS):
        block = queries[:, first : first + HEADS].transpose(0, 1)
        products = torch.relu(torch.matmul(block, keys.t()))
        total += (products * weights[:, first : first + HEADS].t()[:, :, None]).sum(0)
    column = torch.arange(keys.shape[0], dtype=torch.int32, device=keys.device)
    outside = (column < starts[:, None]) | (column >= ends[:, None])
    return total.masked_fill(outside, -torch.inf)


def select(scores: torch.Tensor, count: int, first: torch.Tensor | None = None) -> torch.Tensor:
    """The `count` best columns of each row, int32 [T, count], minus `first` [T]; -1 where a row has
    fewer that are not -inf.
    """
    found = min(count, scores.shape[1])
    best, ids = torch.topk(scores, found, dim=-1)
    ids = ids.int() if first is None else ids.int() - first[:, None]
    ids = ids.masked_fill(best == -torch.inf, -1)
    if found < count:
        ids = torch.nn.functional.pad(ids, (0, count - found), value=-1)
    return ids
