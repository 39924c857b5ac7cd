"""Dense MLA prefill on the stub device: the funnel by hand, what the traffic needs, and what the
kernel is called with.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jitwarm.harness import Settings, needed_keys, plan_case
from jitwarm.scenario_file import load
from jitwarm.traffic import Batch, replay
from jitwarm.zoo.models.mla_prefill import HEAD_DIMS, MLAPrefill

SCENARIO = Path(__file__).parents[2] / "scenarios" / "mla-prefill.toml"
STUB = Settings(device="stub", steps=30)
HELPERS = ("._flash_attn_fwd_combine[", "._get_scheduler_metadata[")


def case_of(label, **options):
    (case,) = [case for case in load(SCENARIO).cases if case.label == label]
    return msgspec.structs.replace(case, options=case.options | options)


# 61 layers register once each. There are three kinds of launches: new tokens with and without
# contexts, and contexts. sm90: one tile of queries or more. sm100 with 16 heads a rank: one tile,
# two or more (head dim 256: one on a pair of SMs, one, or more), and splits: of a context behind
# one tile of queries, and behind more.
@pytest.mark.cutedsl
@pytest.mark.parametrize(
    ("label", "invariant", "keys"),
    [
        ("head_dims=128-64-128 arch=sm100", False, 3 * 3 + 2),
        ("head_dims=256-0-256 arch=sm100", True, 3 * 3),
        ("head_dims=192-64-256 arch=sm90", False, 3 * 2),
    ],
)
def test_the_funnel_and_what_the_traffic_needs(label, invariant, keys):
    """Keys of a replay without a compiler. What splits need besides, a schedule and a combine
    kernel, is compiled with the main kernel and has no declared key.
    """
    pytest.importorskip("flash_attn.cute")
    case = case_of(label, batch_invariant=invariant)
    warmed = plan_case(case, STUB).warmed
    assert {
        row.kernel: (row.backend, row.registrations, row.distinct_registrations, row.keys)
        for row in warmed.rows
    } == {"FA4MLAPrefill": ("fa4", 61, 1, keys), "ComputeSlotMapping": ("triton", 1, 1, 1)}
    assert (warmed.layers, warmed.funnel.registrations) == (61, 62)
    assert warmed.failed == warmed.findings == ()
    planned = {key.backend_key for key in warmed.keys}
    launches = needed_keys(case, STUB, 0).observed.launches
    helpers = {key for key in launches if any(name in key for name in HELPERS)}
    assert not helpers or ("sm100" in label and not invariant)
    assert launches.keys() - helpers <= planned
    # Once a step the slots; in every layer the new tokens, and each piece of the contexts.
    pieces = sum(1 + extra for extra in map(pieces_of, replay(case, 30).batches) if extra >= 0)
    assert sum(n for key, n in launches.items() if key not in helpers) == 30 + 61 * pieces


def pieces_of(batch: Batch) -> int:
    """Pieces of context by hand, -1 without prefills: 65,536 rows shared by the requests that have
    one, each in whole blocks of 64.
    """
    sharing = [length for length in batch.prefill_contexts if length]
    if not sharing:
        return 0 if batch.prefill_chunks else -1
    piece = 65536 // len(sharing) // 64 * 64
    return -(-max(sharing) // piece)


@pytest.mark.parametrize("dims", HEAD_DIMS)
def test_the_values_are_a_slice_of_the_joint_projection(dims, stub, outside, monkeypatch):
    """What the kernel is called with, without the library."""
    case = case_of(f"head_dims={dims} arch=sm90")
    monkeypatch.setattr("jitwarm.backends.fa4.library.interface", lambda who: None)
    calls = []
    monkeypatch.setattr("jitwarm.zoo.models.mla_prefill.fa4_mla_prefill", Recorder(calls))
    monkeypatch.setattr(
        "jitwarm.zoo.steps.block_tables.BlockTable.map", lambda self, buffers, batch: None
    )
    model = MLAPrefill(case.engine_config(0, MLAPrefill.hf_config), stub)
    model.bind_kv_cache()
    nope, rope, value = HEAD_DIMS[dims]
    model.set_up((Batch((5,), (), ()), Batch((), (3, 2), (70, 0))))
    assert calls == []
    model.step(Batch((7, 9), (), ()))
    assert calls == []  # decodes are served by other kernels
    model.step(Batch((7,), (3, 20), (65530, 40000)))
    assert len(calls) == 61 * 3
    assert calls[:3] * 61 == calls
    new, first, second = calls[0], calls[1], calls[2]
    assert new["q"] == new["k"] == (23, 16, nope + rope)
    assert new["v"] == (23, 16, value)
    assert new["v_stride"] == (16 * (nope + value), nope + value, 1)
    assert (new["causal"], new["lse"], new["cu_q"], new["cu_k"]) == (True, True, [0, 3, 23],
                                                                   [0, 3, 23])  # fmt: skip
    assert (new["max_q"], new["max_k"]) == (20, 20)
    assert (first["causal"], first["cu_k"], first["max_k"]) == (False, [0, 32768, 65536], 32768)
    assert (second["cu_k"], second["max_k"]) == ([0, 32762, 32762 + 7232], 32762)
    assert second["v_stride"] == new["v_stride"]
    calls.clear()
    model.step(Batch((), (3, 20), (0, 0)))
    assert [call["lse"] for call in calls] == [False] * 61


class Recorder:
    """Stands for the kernel."""

    def __init__(self, calls):
        self.calls = calls

    def register_warmup(self, config, *, contexts):
        assert contexts == 65536

    def __call__(self, q, k, v, cu_q, cu_k, max_q, max_k, *, causal, return_lse, num_splits):
        self.calls.append({
            "q": tuple(q.shape), "k": tuple(k.shape), "v": tuple(v.shape), "v_stride": v.stride(),
            "cu_q": cu_q.tolist(), "cu_k": cu_k.tolist(), "max_q": max_q, "max_k": max_k,
            "causal": causal, "lse": return_lse, "splits": num_splits,
        })  # fmt: skip
        return (q, q) if return_lse else q
