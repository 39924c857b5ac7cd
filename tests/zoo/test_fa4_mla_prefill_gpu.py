"""MLA's prefill attention on a GPU against float32 attention. Run it in a process of its own.

Tolerance 2e-2, absolute and relative, for bfloat16; 1e-2 for the log-sum-exp.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from jitwarm import device
from jitwarm.config import EngineConfig, HFConfig, ModelConfig
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.warm import warm
from jitwarm.zoo.kernels.fa4_mla_prefill import fa4_mla_prefill as prefill

sys.path.insert(0, str(Path(__file__).parent))
from attention_references import mla_batch, varlen_attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # whatever that torch warns of is not the subject
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.fixture(scope="module", autouse=True)
def gpu():
    pytest.importorskip("flash_attn.cute")
    return device.activate("cuda")


def check(query_lens, kv_lens, *, causal, return_lse, heads=4, qk=192, v=128, num_splits=0):
    q, k, value, cu_q, cu_k = mla_batch(query_lens, kv_lens, heads=heads, qk=qk, v=v)
    given = prefill(
        q, k, value, cu_q, cu_k, max(query_lens), max(kv_lens),
        causal=causal, return_lse=return_lse, num_splits=num_splits,
    )  # fmt: skip
    out, lse = varlen_attention(q, k, value, query_lens, kv_lens, causal=causal, scale=qk**-0.5)
    got = given[0] if return_lse else given
    torch.testing.assert_close(got.float(), out, rtol=2e-2, atol=2e-2)
    if return_lse:
        torch.testing.assert_close(given[1], lse, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("return_lse", [False, True])
def test_new_tokens_are_causal(return_lse):
    lens = [1, 130, 7, 300]
    check(lens, lens, causal=True, return_lse=return_lse)


@pytest.mark.parametrize("num_splits", [0, 1])
def test_a_context_chunk_with_its_log_sum_exp(num_splits):
    lens = [1000, 64, 333]
    check([5, 200, 1], lens, causal=False, return_lse=True, num_splits=num_splits)


def test_one_query_and_many_keys():
    """Where the library would split if it could."""
    check([1], [9000], causal=False, return_lse=True)


@pytest.mark.parametrize(("qk", "v"), [(128, 128), (256, 256)])
def test_other_head_dims(qk, v):
    check([130, 3], [130, 3], causal=True, return_lse=False, qk=qk, v=v)


def test_nothing_compiles_or_loads_after_warm_up():
    hf = HFConfig(num_attention_heads=4, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
    registry = JitWarmupRegistry(EngineConfig(model_config=ModelConfig(hf_config=hf)))
    with registry.activate():
        prefill.register_warmup()
    plan = make_plan(registry)
    with Monitor("record", count_hits=True) as monitor:
        warm(plan, jobs=1).raise_failures()
        monitor.begin_serving()
        for causal, return_lse in ((True, False), (True, True), (False, True)):
            for query_lens in ([1], [60, 70], [500, 1]):
                kv_lens = query_lens if causal else [800] * len(query_lens)
                check(query_lens, kv_lens, causal=causal, return_lse=return_lse)
    late = [(e.kind, e.key) for e in monitor.events if e.phase != "warm"]
    assert late == []
    main = {key: n for key, n in monitor.launches().items() if "._flash_attn_fwd[" in key}
    assert set(main) <= set(plan.backend_keys)
