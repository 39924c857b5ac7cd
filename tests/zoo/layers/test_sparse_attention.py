"""The torch parts around an indexer and a sparse attention, against plain loops in float64."""

from __future__ import annotations

import math

import pytest
import torch

from jitwarm.config import HFConfig
from jitwarm.zoo.layers import index_scores
from jitwarm.zoo.layers.gathered_attention import TOKENS, gathered_attention
from jitwarm.zoo.layers.index_scores import decode_scores, prefill_scores, select
from jitwarm.zoo.layers.rotary import Rotary, rotate
from jitwarm.zoo.layers.sparse_mla import SparseMLALayer
from jitwarm.zoo.layers.weights import Scale, Weights

GEN = torch.Generator().manual_seed(3)


def random(*shape):
    return torch.randn(*shape, generator=GEN, dtype=torch.float64)


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)  # softmax is float32


def attention_by_hand(q, cache, rows, scale, size, sink=None):
    out = torch.zeros(q.shape[0], q.shape[1], size, dtype=torch.float64)
    for t in range(q.shape[0]):
        chosen = [r for r in rows[t].tolist() if r >= 0]
        for h in range(q.shape[1]):
            weights = [math.exp(scale * float(q[t, h] @ cache[r])) for r in chosen]
            total = sum(weights) + (math.exp(float(sink[h])) if sink is not None else 0)
            for weight, r in zip(weights, chosen, strict=True):
                out[t, h] += weight / total * cache[r, :size]
    return out


@pytest.mark.parametrize("with_sink", [False, True])
def test_attention_over_selected_rows(with_sink):
    q, cache = random(5, 3, 8), random(20, 8)
    rows = torch.randint(-3, 20, (5, 7), generator=GEN, dtype=torch.int32)
    rows[2] = -1  # a token without any row
    sink = random(3) if with_sink else None
    found = gathered_attention(q, [(cache, rows)], 0.4, 6, sink)
    torch.testing.assert_close(
        found, attention_by_hand(q, cache, rows, 0.4, 6, sink), rtol=1e-6, atol=1e-6
    )
    assert found[2].abs().max() == 0


def test_attention_over_two_caches_is_attention_over_both():
    q, one, two = random(4, 2, 8), random(6, 8), random(9, 8)
    rows = torch.randint(-1, 6, (4, 3), generator=GEN, dtype=torch.int32)
    others = torch.randint(-1, 9, (4, 5), generator=GEN)
    both = torch.cat((rows.long(), torch.where(others < 0, -1, others + 6)), dim=1)
    found = gathered_attention(q, [(one, rows), (two, others)], 0.4, 6)
    close(found, attention_by_hand(q, torch.cat((one, two)), both, 0.4, 6))


def test_attention_in_blocks_is_attention():
    q, cache = random(TOKENS + 3, 1, 4), random(9, 4)
    rows = torch.randint(-1, 9, (TOKENS + 3, 2), generator=GEN, dtype=torch.int32)
    found = gathered_attention(q, [(cache, rows)], 1.0, 4)
    torch.testing.assert_close(
        found, attention_by_hand(q, cache, rows, 1.0, 4), rtol=1e-6, atol=1e-6
    )
    assert gathered_attention(q[:0], [(cache, rows[:0])], 1.0, 4).shape == (0, 1, 4)


def test_scores_of_decodes():
    q, w, keys = random(3, 10, 4), random(3, 10), random(3, 6, 4)
    lengths = torch.tensor([6, 0, 2], dtype=torch.int32)
    found = decode_scores(q, w, keys, lengths)
    for b in range(3):
        for s in range(6):
            want = sum(float(w[b, h]) * max(float(q[b, h] @ keys[b, s]), 0) for h in range(10))
            want = want if s < lengths[b] else -math.inf
            assert found[b, s].item() == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("products", [1, 60, 2**26])
def test_scores_of_prefills(monkeypatch, products):
    """In blocks of 1, 2 and all 10 heads."""
    monkeypatch.setattr(index_scores, "PRODUCTS", products)
    q, w, keys = random(4, 10, 4), random(4, 10), random(7, 4)
    lengths = torch.tensor([0, 3, 6, 7], dtype=torch.int32)
    found = prefill_scores(q, w, keys, lengths)
    for t in range(4):
        for s in range(7):
            want = sum(float(w[t, h]) * max(float(q[t, h] @ keys[s]), 0) for h in range(10))
            want = want if s < lengths[t] else -math.inf
            assert found[t, s].item() == pytest.approx(want, rel=1e-5)


def test_selection():
    scores = torch.tensor([[3.0, -math.inf, 5.0, 4.0], [-math.inf] * 4])
    assert select(scores, 2).tolist() == [[2, 3], [-1, -1]]
    assert select(scores, 6).tolist() == [[2, 3, 0, -1, -1, -1], [-1] * 6]
    assert select(scores[:, :0], 2).tolist() == [[-1, -1], [-1, -1]]
    assert select(scores, 2).dtype is torch.int32


def test_rotation_depends_on_the_distance_only():
    rotary = Rotary(6, "cpu")
    q, k = random(1, 6).float(), random(1, 6).float()

    def product(i, j):
        at = [rotary.angles(torch.tensor([p])) for p in (i, j)]
        return float(rotate(q, at[0])[0] @ rotate(k, at[1])[0])

    assert product(3, 1) == pytest.approx(product(103, 101), rel=1e-4)
    assert product(3, 1) != pytest.approx(product(4, 1), rel=1e-3)
    zero = rotary.angles(torch.tensor([0]))
    assert torch.equal(rotate(q, zero), q)


def test_absorbed_queries_score_as_expanded_keys_do():
    """q.k in the latent space equals q.k of expanded keys, and so do the values."""
    model = HFConfig(
        hidden_size=16, num_attention_heads=4, kv_lora_rank=8, qk_nope_head_dim=6,
        qk_rope_head_dim=4, v_head_dim=5, q_lora_rank=12, index_n_heads=2, index_head_dim=4,
    )  # fmt: skip
    layer = SparseMLALayer(Weights("cpu", torch.float64), "l", model, 4, Scale(1), slots=10)
    hidden = random(3, 16)
    angles = Rotary(4, "cpu").angles(torch.arange(3))
    slots = torch.tensor([4, 7, 10])
    projected = layer.project(hidden, slots, angles)
    assert projected.queries.shape == (3, 4, 10)
    assert projected.index_queries.shape == (3, 2, 4)
    assert projected.index_weights.shape == (3, 2)
    rows = layer.cache[slots]
    keys, values = layer.expanded(rows)
    expanded = torch.einsum("thd,shd->hts", projected.queries, keys)
    latent = torch.einsum("thd,sd->hts", layer.absorbed(projected.queries), rows)
    torch.testing.assert_close(latent, expanded)
    weights = torch.softmax(expanded, -1)
    attended = torch.einsum("hts,sd->thd", weights, rows[:, :8])
    torch.testing.assert_close(
        layer.values(attended), torch.einsum("hts,shd->thd", weights, values)
    )
    assert values.stride() == (4 * 11, 11, 1)  # a slice of the joint projection
    assert layer.output(hidden, values).shape == hidden.shape
    assert layer.cache[[0, 1, 2, 3, 5, 6, 8, 9]].abs().max() == 0
