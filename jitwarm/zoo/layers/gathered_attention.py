"""Attention over rows of a latent cache that somebody selected: one key/value head, in torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

# Query tokens of a block: its gathered rows (block x selected x 576 x 2 bytes) are 600 MB at 2,048
# selected rows, a fraction of a GPU's memory.
TOKENS = 256


def gathered_attention(
    queries: torch.Tensor,
    sources: Sequence[tuple[torch.Tensor, torch.Tensor]],
    scale: float,
    value_size: int,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    """softmax(scale * q.k) v over the selected rows of each token.

    queries [T, H, D]; each source is a cache [N, D], whose first `value_size` columns are the
    values, and rows int32 or int64 [T, K] of it, negative: none. `sink` [H] is a logit that takes
    weight and has no value.
    Returns [T, H, value_size] in the queries' dtype, zeros for a token without a row. Products in
    the queries' dtype, softmax in float32.
    """
    parts = []
    for first in range(0, queries.shape[0], TOKENS):
        q = queries[first : first + TOKENS]
        chosen = [rows[first : first + TOKENS] for _, rows in sources]
        found = [
            cache[rows.clamp(min=0).long()]
            for (cache, _), rows in zip(sources, chosen, strict=True)
        ]
        keys, absent = torch.cat(found, dim=1), torch.cat([rows < 0 for rows in chosen], dim=1)
        scores = torch.bmm(q, keys.transpose(1, 2)).float() * scale
        scores = scores.masked_fill(absent[:, None, :], -torch.inf)
        if sink is not None:
            column = sink.float().view(1, -1, 1).expand(q.shape[0], -1, 1)
            scores = torch.cat((scores, column), dim=-1)
        # A token without any row has no distribution: 0 for it, as the kernels of the field do.
        weights = torch.softmax(scores, dim=-1).nan_to_num(0.0).to(q.dtype)
        parts.append(torch.bmm(weights[..., : keys.shape[1]], keys[..., :value_size]))
    return torch.cat(parts) if parts else queries.new_empty(0, queries.shape[1], value_size)
