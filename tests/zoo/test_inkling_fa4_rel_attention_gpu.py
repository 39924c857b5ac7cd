"""Inkling's attention on a GPU against float32 attention, and that warm-up leaves nothing to the
first launch. Run it in a process of its own: the device of a process is one.

Tolerance 2e-2, absolute and relative, for bfloat16.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from jitwarm import device
from jitwarm.config import (
    CacheConfig,
    EngineConfig,
    HFConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
)
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.warm import warm
from jitwarm.zoo.kernels.inkling_fa4_rel_attention import inkling_fa4_rel_attention as attend

sys.path.insert(0, str(Path(__file__).parent))
from attention_references import paged_batch, relative_attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # whatever that torch warns of is not the subject
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

GLOBAL = {"is_local": False, "kv_heads": 1, "extent": 1024}
LOCAL = {"is_local": True, "kv_heads": 2, "extent": 512}
HEADS = 8  # of a rank, TP 8


@pytest.fixture(scope="module", autouse=True)
def gpu():
    pytest.importorskip("flash_attn.cute")
    return device.activate("cuda")


def run(batch, *, is_local, out=None):
    return attend(
        batch.q,
        batch.k_cache,
        batch.v_cache,
        batch.block_table,
        batch.kv_lens,
        batch.cu_q,
        batch.rel_logits,
        is_local=is_local,
        max_query_len=max(batch.query_lens),
        max_kv_len=batch.rel_logits.shape[2] if is_local else 131072,
        num_reqs=len(batch.query_lens),
        out=out,
    )


def check(batch, *, is_local):
    expected = relative_attention(batch, is_local=is_local)
    torch.testing.assert_close(
        run(batch, is_local=is_local).float(), expected, rtol=2e-2, atol=2e-2
    )


@pytest.mark.parametrize("layer", [GLOBAL, LOCAL], ids=["global", "local"])
@pytest.mark.parametrize(
    ("query_lens", "kv_lens"),
    [
        ([1], [1]),
        ([1, 1, 1, 1], [1, 17, 640, 1500]),
        ([1, 3, 1, 40], [33, 3, 2000, 1100]),
        ([300], [300]),
        ([700, 1, 20], [1700, 513, 20]),
    ],
    ids=["one token", "decode", "mixed", "prefill", "chunk"],
)
@pytest.mark.parametrize("block_size", [16, 128])
def test_against_float32(layer, query_lens, kv_lens, block_size):
    kind = layer["is_local"]
    batch = paged_batch(
        query_lens,
        kv_lens,
        heads=HEADS,
        kv_heads=layer["kv_heads"],
        extent=layer["extent"],
        block_size=block_size,
    )
    check(batch, is_local=kind)


def test_the_bias_is_what_makes_the_difference():
    batch = paged_batch([5, 1], [900, 70], heads=HEADS, kv_heads=1, extent=64)
    with_bias = run(batch, is_local=False).clone()
    batch.rel_logits.zero_()
    assert (run(batch, is_local=False) - with_bias).abs().max() > 0.1
    check(batch, is_local=False)


def test_padded_requests_and_longer_buffers():
    """Rows behind `num_reqs` are not looked at; a request without tokens gets none."""
    batch = paged_batch([2, 1, 4], [50, 18, 90], heads=HEADS, kv_heads=1, extent=256)
    expected = relative_attention(batch, is_local=False)
    out = torch.full_like(batch.q, 7.0)
    longer = torch.full((6, batch.block_table.shape[1]), 1 << 20, dtype=torch.int32, device="cuda")
    longer[:3] = batch.block_table
    lens = torch.tensor([50, 18, 90, -1, -1, -1], dtype=torch.int32, device="cuda")
    cu_q = torch.tensor([0, 2, 3, 7, 99, 99, 99], dtype=torch.int32, device="cuda")
    attend(
        batch.q, batch.k_cache, batch.v_cache, longer, lens, cu_q, batch.rel_logits,
        is_local=False, max_query_len=4, max_kv_len=131072, num_reqs=3, out=out,
    )  # fmt: skip
    torch.testing.assert_close(out.float(), expected, rtol=2e-2, atol=2e-2)


def test_more_than_256_requests():
    lens = [1 + (7 * i) % 90 for i in range(300)]
    batch = paged_batch([1] * 300, lens, heads=HEADS, kv_heads=1, extent=64)
    check(batch, is_local=False)


def test_nothing_compiles_or_loads_after_warm_up():
    hf = HFConfig(
        num_attention_heads=64,
        num_key_value_heads=8,
        local_num_key_value_heads=16,
        head_dim=128,
        sliding_window=512,
        rel_extent=1024,
    )
    config = EngineConfig(
        model_config=ModelConfig(max_model_len=131072, hf_config=hf),
        parallel_config=ParallelConfig(tensor_parallel_size=8),
        cache_config=CacheConfig(block_size=16),
        scheduler_config=SchedulerConfig(64, 1024),
    )
    registry = JitWarmupRegistry(config)
    with registry.activate():
        attend.register_warmup()
    plan = make_plan(registry)
    with Monitor("record", count_hits=True) as monitor:
        warm(plan, jobs=1).raise_failures()
        monitor.begin_serving()
        for layer in (GLOBAL, LOCAL):
            for query_lens, kv_lens in (([1] * 64, [99] * 64), ([1], [1400]), ([600, 3], [600, 9])):
                batch = paged_batch(
                    query_lens,
                    kv_lens,
                    heads=HEADS,
                    kv_heads=layer["kv_heads"],
                    extent=layer["extent"],
                )
                run(batch, is_local=layer["is_local"])
        device.current().synchronize()
    late = [(e.kind, e.key) for e in monitor.events if e.phase != "warm"]
    assert late == []
    main = {key: n for key, n in monitor.launches().items() if "._flash_attn_fwd[" in key}
    assert set(main) <= set(plan.backend_keys)
    assert sum(main.values()) == 6
