"""Inkling's tokens on the CPU: projections, paged caches and the feed of decodes, with attention in
plain torch, against a float32 model that has no cache.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from jitwarm.config import CacheConfig, EngineConfig, HFConfig, ModelConfig, SchedulerConfig
from jitwarm.errors import ScenarioError
from jitwarm.traffic import Batch
from jitwarm.zoo.models.inkling_attention import AttentionBuffers, StepInputs, layer_kinds
from jitwarm.zoo.models.inkling_tokens import TokenStack
from jitwarm.zoo.steps.block_tables import BlockTable
from jitwarm.zoo.steps.paged_slots import check_own_blocks
from jitwarm.zoo.steps.step_buffers import BatchBuffers

sys.path.insert(0, str(Path(__file__).parent))
from inkling_reference import attention, paged

BLOCK = 4
MODEL = HFConfig(
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=1,
    local_num_key_value_heads=2,
    head_dim=32,
    hidden_size=128,
    vocab_size=512,
    rel_extent=16,
    d_rel=4,
    sliding_window=8,
    local_layer_ids=(0, 1, 2, 3, 4),
)
CONFIG = EngineConfig(
    ModelConfig("bfloat16", 128, MODEL),
    cache_config=CacheConfig(BLOCK, 3 * 32),
    scheduler_config=SchedulerConfig(max_num_seqs=3, max_num_batched_tokens=64),
)


def map_slots(step):
    """What ComputeSlotMapping does on a GPU."""
    count, batch = step.batch.num_tokens, step.batch
    rows = torch.arange(len(batch.query_lens)).repeat_interleave(torch.tensor(batch.query_lens))
    positions = step.buffers.positions[:count]
    for table in step.tables:
        blocks = table.blocks[rows, positions // BLOCK].long()
        table.slots[:count] = blocks * BLOCK + positions % BLOCK


def scores_without_cache(stack, ids):
    """Scores of the last token of one request in float32, everything computed anew."""

    def normed(x, norm):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.gain

    hidden = stack.embedding.table.float()[ids]
    for layer in stack.layers:
        kind, n = layer.kind, len(ids)
        x = normed(hidden, layer.norm)
        q = (x @ layer.to_queries.float().T).view(n, kind.heads, -1)
        k, v = (
            part.repeat_interleave(kind.heads // kind.kv_heads, 1)
            for part in (x @ layer.to_kv.float().T).view(n, 2, kind.kv_heads, -1).unbind(1)
        )
        rel = (x @ layer.to_rel.float().T).view(n, kind.heads, -1)
        bias = rel @ layer.rel_to_bias.float()
        window = kind.extent if kind.is_local else 0
        hidden = hidden + attention(q, k, v, bias, window).flatten(1) @ layer.to_output.float().T
    return normed(hidden[-1], stack.head.norm) @ stack.head.projection.float().T


class Parts:
    """A stack with its buffers; `scale` as in a scenario."""

    def __init__(self, scale=1):
        self.buffers = BatchBuffers(CONFIG, "cpu")
        self.tables = [BlockTable(CONFIG, group, BLOCK, "cpu") for group in range(2)]
        attention = AttentionBuffers(CONFIG, "cpu", generate=True)
        self.stack = TokenStack(CONFIG, "cpu", attention, self.tables, scale)

    def step(self, batch):
        self.buffers.copy(batch)
        return StepInputs(batch, self.buffers, self.tables)


def test_every_sixth_layer_is_global(outside):
    stack = Parts().stack
    assert [layer.kind.is_local for layer in stack.layers] == [True] * 5 + [False]
    assert [kind.kv_heads for kind in layer_kinds(CONFIG)] == [2] * 5 + [1]
    assert [kind.extent for kind in layer_kinds(CONFIG)] == [8] * 5 + [16]
    caches = {layer.cache.data_ptr() for layer in stack.layers}
    assert len(caches) == 6  # with tokens no two layers may share one


@torch.inference_mode()
def test_prefill_and_decodes_against_a_model_without_a_cache(outside):
    parts = Parts()
    stack = parts.stack
    stack.rehearse(parts.step(Batch((), (3, 3), (0, 0))))
    assert stack.feed.last.tolist() == [0, 0, 0]
    assert stack.feed.last.tolist() == [0, 0, 0]
    chunks, requests, clear = (21, 5, 9), [[], [], []], 0
    batches = [Batch((), chunks, (0, 0, 0))]
    batches += [Batch(tuple(n + step for n in chunks), (), ()) for step in range(1, 9)]
    # One row less, and a padding row in its place: it must spoil nobody's cache.
    batches += [Batch((30, 14), (), (), padded=1)]
    for batch in batches:
        step = parts.step(batch)
        map_slots(step)
        fed = stack.feed.fill(batch).tolist()
        tokens = stack.run(step, paged).tolist()
        for row, (count, length) in enumerate(zip(batch.query_lens, batch.seq_lens, strict=True)):
            requests[row] += fed[:count]
            fed = fed[count:]
            if not length:
                continue
            assert len(requests[row]) == length
            scores = scores_without_cache(stack, torch.tensor(requests[row]))
            best, second = scores.topk(2).values.tolist()
            assert scores[tokens[row]] > best - 0.15
            if best - second > 0.15:
                clear += 1
                assert tokens[row] == int(scores.argmax())
        assert stack.feed.last[: len(tokens)].tolist() == tokens
    assert clear > 15


def test_scale_makes_the_model_smaller_and_leaves_what_kernels_see(outside):
    half = Parts(scale=2).stack
    assert half.embedding.table.shape == (256, 64)
    layer = half.layers[5]
    assert layer.to_queries.shape == (4 * 32, 64)
    assert layer.rel_to_bias.shape == (4, 16)
    assert layer.cache.shape == (96, 2, BLOCK, 1, 32)


def test_rows_share_no_block(outside):
    for table in Parts().tables:
        assert table.blocks.shape == (3, 32)
        assert sorted(table.blocks.flatten().tolist()) == list(range(96))
    check_own_blocks(CONFIG, "tiny", CONFIG.cache_config.block_size)
    smaller = replace(CONFIG, cache_config=CacheConfig(BLOCK, 95))
    with pytest.raises(ScenarioError) as caught:
        check_own_blocks(smaller, "tiny", BLOCK)
    assert str(caught.value) == (
        "model tiny: $.cache.num_blocks: with tokens, 3 sequences of 32 blocks need at least 96, "
        "got 95"
    )
