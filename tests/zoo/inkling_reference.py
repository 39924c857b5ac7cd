"""Inkling's attention in plain float32 torch, through the block table as the kernel reads it."""

from __future__ import annotations

import torch


def attention(q, k, v, bias, window):
    """One request: q [n, H, D] are the last of k and v [m, H, D]; bias [n, H, E] by distance."""
    (n, _, size), m, extent = q.shape, k.shape[0], bias.shape[2]
    queries = torch.arange(m - n, m, device=q.device)
    distance = queries[:, None] - torch.arange(m, device=q.device)[None]
    scores = torch.einsum("nhd,mhd->nhm", q, k) / size
    near = (distance >= 0) & (distance < extent)
    at = distance.clamp(0, extent - 1)[:, None].expand(-1, bias.shape[1], -1)
    scores = scores + bias.gather(2, at) * near[:, None]
    seen = (distance >= 0) & (distance < (window or m))
    weights = scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1)
    return torch.einsum("nhm,mhd->nhd", weights, v)


def paged(*, q, k_cache, v_cache, block_table, kv_lens, cu_q, rel_logits, is_local, out, **_):
    """What stands for the kernel: gathers each row's keys through its block table."""
    group, size = q.shape[1] // k_cache.shape[2], k_cache.shape[1]
    for row, length in enumerate(kv_lens.tolist()):
        first, last = cu_q[row : row + 2].tolist()
        if not length:
            out[first:last] = 0
            continue
        blocks = block_table[row, : -(-length // size)].long()
        k, v = (
            cache[blocks].flatten(0, 1)[:length].float().repeat_interleave(group, 1)
            for cache in (k_cache, v_cache)
        )
        tokens = slice(first, last)
        window = rel_logits.shape[2] if is_local else 0
        out[tokens] = attention(q[tokens].float(), k, v, rel_logits[tokens].float(), window)
