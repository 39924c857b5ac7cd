"""Inkling from token ids to token ids on a GPU: every layer's attention against float32, and no
compile after warm-up. Run it in a process of its own: the device of a process is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from jitwarm import device
from jitwarm.config import CacheConfig, EngineConfig, HFConfig, ModelConfig, SchedulerConfig
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.traffic import Batch
from jitwarm.warm import warm
from jitwarm.zoo.kernels.inkling_fa4_rel_attention import inkling_fa4_rel_attention
from jitwarm.zoo.models import inkling
from jitwarm.zoo.models.inkling import Inkling

sys.path.insert(0, str(Path(__file__).parent))
from inkling_reference import paged

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # whatever that torch warns of is not the subject
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

CONFIG = EngineConfig(
    ModelConfig(
        "bfloat16",
        2048,
        HFConfig(
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=1,
            local_num_key_value_heads=2,
            head_dim=128,
            hidden_size=512,
            vocab_size=4096,
            rel_extent=1024,
            d_rel=16,
            sliding_window=512,
            local_layer_ids=(0, 1, 2, 3, 4),
        ),
    ),
    cache_config=CacheConfig(16, 4 * 128),
    scheduler_config=SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=2048),
    options=(("tokens", True),),
)
PREFILL = Batch((), (700, 1, 40), (0, 0, 0))
DECODE = Batch((701, 2, 41), (), ())
BATCHES = (
    PREFILL,
    DECODE,
    Batch((702,), (1, 300), (2, 41)),
    Batch((703, 4), (), (), padded=1),
    Batch((1500,), (5,), (3,)),
)


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("flash_attn.cute")
    gpu = device.activate("cuda")
    registry = JitWarmupRegistry(CONFIG)
    with registry.activate():
        built = Inkling(CONFIG, gpu)
        built.bind_kv_cache()
    assert built.emits_token
    with Monitor("record", count_hits=True) as watch:
        built.set_up((PREFILL, DECODE))
        assert not watch.launches()
    warm(make_plan(registry)).raise_failures()
    return built


def test_attention_of_every_layer(model, monkeypatch):
    compared = []

    def both(**arguments):
        expected = torch.full_like(arguments["out"], torch.nan)
        paged(**(arguments | {"out": expected}))
        inkling_fa4_rel_attention(**arguments)
        found = arguments["out"]
        rows = torch.arange(arguments["num_reqs"], device=found.device).repeat_interleave(
            arguments["cu_q"].diff()
        )
        real = arguments["kv_lens"][rows] > 0  # what a padding row gets is nobody's business
        torch.testing.assert_close(found[real], expected[real], rtol=2e-2, atol=2e-2)
        compared.append(arguments["is_local"])
        found.copy_(torch.where(real[:, None, None], found, 0))

    monkeypatch.setattr(inkling, "inkling_fa4_rel_attention", both)
    for batch in BATCHES:
        model.step(batch)
    assert compared == ([True] * 5 + [False]) * len(BATCHES)
    assert 0 <= model.stack.feed.last.min() <= model.stack.feed.last.max() < 4096


def test_no_compile_after_warm_up(model):
    with Monitor("error", count_hits=True) as monitor:
        monitor.begin_serving()
        for batch in BATCHES:
            model.step(batch)
        torch.cuda.synchronize()
        assert monitor.events == []
        assert sum(monitor.launches().values()) >= len(BATCHES) * (6 + 2)


def test_the_same_traffic_emits_the_same_tokens(model):
    def tokens():
        model.stack.feed.last.zero_()
        emitted = []
        for batch in BATCHES[:2]:  # prompts from the start: what the cache held before is not read
            model.step(batch)
            emitted.append(model.stack.feed.last[:3].tolist())
        return emitted

    assert tokens() == tokens()
