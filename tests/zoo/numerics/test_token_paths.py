"""The token paths of the DeepSeek models: a prompt in chunks and then decodes gives what the whole
prompt at once gives.

Chunked and whole runs take different kernels (windows and selections of decodes against gathered
prefills), so agreement says that slots, rows, states and selections mean the same in both.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from jitwarm.config import (
    CacheConfig,
    EngineConfig,
    HFConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
)
from jitwarm.registry import JitWarmupRegistry
from jitwarm.traffic import Batch
from jitwarm.zoo.layers import weights
from jitwarm.zoo.models import deepseek_v32
from jitwarm.zoo.models.deepseek_v4 import DeepSeekV4Pro
from jitwarm.zoo.models.deepseek_v32 import DeepSeekV32
from jitwarm.zoo.steps import deepseek_v4_buffers

VOCAB = 64
SMALL = {
    "num_attention_heads": 2, "hidden_size": 32, "q_lora_rank": 24, "vocab_size": VOCAB,
    "index_topk": 128, "index_n_heads": 16, "index_head_dim": 16,
}  # fmt: skip
V32 = HFConfig(
    num_hidden_layers=2, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
    **SMALL,
)  # fmt: skip
V4 = HFConfig(
    num_hidden_layers=3, qk_nope_head_dim=8, qk_rope_head_dim=8, head_dim=16, o_lora_rank=12,
    o_groups=1, sliding_window=16, compress_ratios=(0, 4, 128, 0), **SMALL,
)  # fmt: skip
LENGTH = 150


@pytest.fixture(params=["v3.2", "v4"])
def build(request, monkeypatch, device):
    """A builder of small models in float32, whose steps can be given their ids."""
    monkeypatch.setattr(weights.Weights.__init__, "__defaults__", (torch.float32, 0))
    # Quantised index queries select other tokens than exact ones do.
    monkeypatch.setattr(deepseek_v32, "INDEXER_DTYPE", torch.float32)
    monkeypatch.setattr(deepseek_v4_buffers, "INDEXER_DTYPE", torch.float32)
    kind, hf_config, block_size = {
        "v3.2": (DeepSeekV32, V32, 64),
        "v4": (DeepSeekV4Pro, V4, 256),
    }[request.param]
    config = EngineConfig(
        ModelConfig("float32", 512, hf_config),
        ParallelConfig(),
        CacheConfig(block_size, 64, "bf16"),
        SchedulerConfig(4, 1024),
        attention_backend="FLASHMLA_SPARSE",
        options=(("tokens", True),),
    )

    def make():
        registry = JitWarmupRegistry(config)
        with registry.activate():
            model = kind(config, SimpleNamespace(kind="cuda", torch_device=str(device)))
        with registry.activate():
            model.bind_kv_cache()
        return model

    return make


def logits(model, monkeypatch, batch, ids):
    """The scores of every row after one step on these ids."""
    path = model.tokens if isinstance(model, DeepSeekV32) else model._step.tokens
    seen = []
    head = path.head.logits
    with monkeypatch.context() as patch:
        patch.setattr(path.feed, "fill", lambda batch: ids)
        patch.setattr(path.head, "logits", lambda *a: seen.append(head(*a)) or seen[-1])
        model.step(batch)
    (found,) = seen
    assert torch.isfinite(found).all()
    return found


def test_chunks_and_decodes_give_what_the_whole_prompt_gives(build, monkeypatch, device):
    generator = torch.Generator().manual_seed(5)
    first = torch.randint(VOCAB, (LENGTH,), generator=generator).to(device)
    second = torch.randint(VOCAB, (LENGTH,), generator=generator).to(device)
    whole = build()
    both = Batch((), (LENGTH, LENGTH), (0, 0))
    wanted = logits(whole, monkeypatch, both, torch.cat((first, second)))
    assert not torch.allclose(wanted[0], wanted[1])

    model = build()
    cuts = (0, 61, 148, 149, 150)
    for start, stop in itertools.pairwise(cuts):
        new = stop - start
        chunks, contexts = (new, new), (start, start)
        batch = Batch((), chunks, contexts) if new > 1 else Batch((stop, stop), (), ())
        ids = torch.cat((first[start:stop], second[start:stop]))
        found = logits(model, monkeypatch, batch, ids)
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3)


def test_a_mixed_batch_gives_what_two_batches_give(build, monkeypatch, device):
    generator = torch.Generator().manual_seed(6)
    prompt = torch.randint(VOCAB, (40,), generator=generator).to(device)
    other = torch.randint(VOCAB, (33,), generator=generator).to(device)
    apart, together = build(), build()
    for model in (apart, together):
        logits(model, monkeypatch, Batch((), (39,), (0,)), prompt[:39])
    decode = logits(apart, monkeypatch, Batch((40,), (), ()), prompt[39:])
    # Row 1 of the second batch is another request than row 0.
    mixed = Batch((40,), (33,), (0,))
    found = logits(together, monkeypatch, mixed, torch.cat((prompt[39:], other)))
    torch.testing.assert_close(found[0], decode[0], rtol=2e-3, atol=2e-3)
    alone = logits(build(), monkeypatch, Batch((), (33,), (0,)), other)
    torch.testing.assert_close(found[1], alone[0], rtol=2e-3, atol=2e-3)


def test_the_set_up_runs_every_operator_and_no_kernel(build, monkeypatch):
    model = build()
    launched = []
    for module in ("pack_seq", "unpack_seq"):
        monkeypatch.setattr(
            f"jitwarm.zoo.kernels.{module}._{module}", SimpleNamespace(run=launched.append)
        )
    model.set_up((Batch((), (100,), (0,)), Batch((101,), (), ())))
    assert launched == []
    step = model if isinstance(model, DeepSeekV32) else model._step
    assert step.tokens.feed.last.abs().max() == 0
