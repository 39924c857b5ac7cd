"""Attention in plain float32 torch, request by request: what the flash-attn-4 kernels are held
against, and the inputs that both get.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class PagedBatch:
    """The inputs of Inkling's attention, and the lengths behind them."""

    q: torch.Tensor
    cache: torch.Tensor  # [blocks, 2, block_size, Hk, D]
    block_table: torch.Tensor
    kv_lens: torch.Tensor
    cu_q: torch.Tensor
    rel_logits: torch.Tensor
    query_lens: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def k_cache(self) -> torch.Tensor:
        return self.cache[:, 0]

    @property
    def v_cache(self) -> torch.Tensor:
        return self.cache[:, 1]


def paged_batch(
    query_lens,
    kv_lens,
    *,
    heads,
    kv_heads,
    extent,
    head_dim=128,
    block_size=16,
    dtype=torch.bfloat16,
    device="cuda",
    seed=0,
):
    """Random inputs; blocks are dealt out in random order. Blocks that no request owns (0 and two
    more) are NaN; the rest of a last block is large and finite, as old tokens are: a kernel may
    multiply it by zero.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    tokens, reqs = sum(query_lens), len(query_lens)
    needed = [-(-length // block_size) for length in kv_lens]
    blocks = sum(needed) + 3
    order = (torch.randperm(blocks - 1, generator=generator) + 1).tolist()
    width = max(needed) + 2
    table = torch.zeros(reqs, width, dtype=torch.int32)
    cache = torch.full((blocks, 2, block_size, kv_heads, head_dim), math.nan)
    for request, (count, length) in enumerate(zip(needed, kv_lens, strict=True)):
        own = [order.pop() for _ in range(count)]
        table[request, :count] = torch.tensor(own, dtype=torch.int32)
        cache[own] = 1000.0
        for place, block in enumerate(own):
            rows = min(block_size, length - place * block_size)
            cache[block, :, :rows] = normal(2, rows, kv_heads, head_dim)
    # A scale of 1 / D makes scores small: large queries, so that the softmax is not flat.
    q = normal(tokens, heads, head_dim) * math.sqrt(head_dim)
    cu_q = torch.tensor([0, *torch.tensor(query_lens).cumsum(0).tolist()], dtype=torch.int32)
    return PagedBatch(
        q.to(device, dtype),
        cache.to(device, dtype),
        table.to(device),
        torch.tensor(kv_lens, dtype=torch.int32, device=device),
        cu_q.to(device),
        (normal(tokens, heads, extent) * 2).to(device, dtype),
        tuple(query_lens),
        tuple(kv_lens),
    )


def relative_attention(batch, *, is_local):
    """Float32 [T, H, D] of a `PagedBatch`."""
    tokens, heads, head_dim = batch.q.shape
    kv_heads = batch.cache.shape[3]
    group, extent = heads // kv_heads, batch.rel_logits.shape[2]
    out = torch.empty(tokens, heads, head_dim, dtype=torch.float32, device=batch.q.device)
    start = 0
    for request, (count, length) in enumerate(zip(batch.query_lens, batch.lengths, strict=True)):
        rows = slice(start, start + count)
        start += count
        blocks = batch.block_table[request].long()
        k, v = (
            batch.cache[blocks, half].flatten(0, 1)[:length].float().repeat_interleave(group, 1)
            for half in (0, 1)
        )
        scores = torch.einsum("qhd,khd->hqk", batch.q[rows].float(), k) / head_dim
        i = torch.arange(length - count, length, device=k.device)[:, None]
        j = torch.arange(length, device=k.device)[None, :]
        distance = i - j
        inside = (distance >= 0) & (distance < extent)
        bias = batch.rel_logits[rows].float().permute(1, 0, 2)
        place = distance.clamp(0, extent - 1).expand(heads, -1, -1)
        scores += torch.where(inside, bias.gather(2, place), 0.0)
        masked = distance < 0
        if is_local:
            masked = masked | (distance >= extent)
        scores.masked_fill_(masked, -math.inf)
        out[rows] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
    return out


def varlen_attention(q, k, v, query_lens, kv_lens, *, causal, scale):
    """Float32 (out [Tq, H, V], lse [H, Tq]) of requests that lie one behind the other."""
    out = torch.empty(*q.shape[:2], v.shape[2], dtype=torch.float32, device=q.device)
    lse = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
    start = key_start = 0
    for count, length in zip(query_lens, kv_lens, strict=True):
        rows, keys = slice(start, start + count), slice(key_start, key_start + length)
        start, key_start = start + count, key_start + length
        scores = torch.einsum("qhd,khd->hqk", q[rows].float(), k[keys].float()) * scale
        if causal:
            i = torch.arange(length - count, length, device=q.device)[:, None]
            j = torch.arange(length, device=q.device)[None, :]
            scores.masked_fill_(j > i, -math.inf)
        lse[:, rows] = scores.logsumexp(-1)
        out[rows] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[keys].float())
    return out, lse


def mla_batch(query_lens, kv_lens, *, heads, qk=192, v=128, nope=128, device="cuda", seed=0):
    """(q, k, v, cu_q, cu_k) of MLA's prefill in bfloat16; v is a slice of the joint projection."""
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).to(device, torch.bfloat16)

    def starts(lens):
        ends = torch.tensor(lens).cumsum(0).tolist()
        return torch.tensor([0, *ends], dtype=torch.int32, device=device)

    joint = normal(sum(kv_lens), heads, nope + v)
    return (
        normal(sum(query_lens), heads, qk),
        normal(sum(kv_lens), heads, qk),
        joint[..., nope:],
        starts(query_lens),
        starts(kv_lens),
    )
