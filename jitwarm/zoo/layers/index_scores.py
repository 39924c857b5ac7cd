"""Scores of a sparse indexer, and the selection from them: torch where engines have kernels of
their own libraries.

score[t, s] = sum over index heads h of weight[t, h] * max(q[t, h] . k[s], 0).
"""

from __future__ import annotations

import torch

# Products of a block of heads that are kept at once: 128 MiB in bf16.
PRODUCTS = 2**26


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
    queries: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Scores float32 [T, S] of query tokens of one request.

    queries [T, h, d], weights [T, h], keys [S, d], lengths int32 [T]: keys at or past a token's
    length score -inf.
    """
    tokens, heads, _ = queries.shape
    total = queries.new_zeros(tokens, keys.shape[0], dtype=torch.float32)
    block = max(1, min(heads, PRODUCTS // max(1, total.numel())))
    for first in range(0, heads, block):
        part = slice(first, first + block)
        products = torch.relu(torch.matmul(queries[:, part].transpose(0, 1), keys.t()))
        total += (products * weights[:, part].t()[:, :, None]).sum(0)
    past = torch.arange(keys.shape[0], device=keys.device) >= lengths[:, None]
    return total.masked_fill(past, -torch.inf)


def select(scores: torch.Tensor, count: int) -> torch.Tensor:
    """The `count` best columns of each row, int32 [T, count]; -1 where a row has fewer that are not
    -inf.
    """
    found = min(count, scores.shape[1])
    best, ids = torch.topk(scores, found, dim=-1)
    ids = ids.int().masked_fill(best == -torch.inf, -1)
    if found < count:
        ids = torch.nn.functional.pad(ids, (0, count - found), value=-1)
    return ids
