"""The envelopes of the models against an oracle that replays every batch of a small engine."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jitwarm.model import build
from jitwarm.plan import make_plan
from jitwarm.proof.prove import prove_envelopes
from jitwarm.scenario_file import load

sys.path.insert(0, str(Path(__file__).parent))

import oracle

SCENARIOS = Path(__file__).parents[2] / "scenarios"
# Of each engine: mutated plans that lack keys, and those with one that nothing needs.
MUTATIONS = {
    "deepseek-v3.2 dcp=1": (21, 20),
    "deepseek-v3.2 dcp=1 fp8": (21, 20),
    "deepseek-v3.2 dcp=2 rank 0": (24, 23),
    "deepseek-v3.2 dcp=2 rank 1": (24, 23),
    "dsv4-dcp dcp=2 rank 0": (30, 23),
    "dsv4-dcp dcp=2 rank 1": (30, 23),
}


@pytest.mark.triton
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_proof_the_plan_and_every_batch_agree(name: str, stub: Any) -> None:
    engine = oracle.ENGINES[name]
    model, plan = engine.build(stub)
    found, steps, _ = oracle.needed(model, engine.batches())
    assert steps > 1000
    assert oracle.reached(model) == found
    assert set(plan.backend_keys) == found
    # Each key that is taken away or added is found by both, the same one.
    verdicts: Counter[str] = Counter()
    for mutation in oracle.mutations(model, plan, oracle.published(model), most=9):
        missing, unreached = oracle.by_oracle(mutation, found)
        assert oracle.by_proof(mutation, model) == (missing, unreached), mutation.what
        verdicts["missing"] += bool(missing)
        verdicts["unreached"] += bool(unreached)
    assert (verdicts["missing"], verdicts["unreached"]) == MUTATIONS[name]


@pytest.mark.parametrize(
    "limits",
    [
        {"rows": 1, "tokens": 1, "longest": 1, "scores": 1},
        {"rows": 1, "tokens": 17, "longest": 24, "scores": 24},  # never behind another row
        {"rows": 2, "tokens": 16, "longest": 24, "scores": 1000},  # 16 at the start alone; unsliced
        {"rows": 3, "tokens": 15, "longest": 24, "scores": 60, "dcp": 4, "rank": 3, "tp": 128},
        {**oracle.DSV4, "tokens": 17, "longest": 40, "scores": 40},  # (3, 3, 10): two states
        {**oracle.DSV4, "rows": 4, "tokens": 17, "longest": 5, "scores": 20, "interleave": 256},
        {**oracle.DSV4, "tokens": 3, "longest": 3, "scores": 3},  # no states at all
    ],
)
def test_limits_of_small_engines(limits: dict[str, Any], stub: Any) -> None:
    engine = oracle.Engine(**limits)
    model, plan = engine.build(stub)
    found, _, _ = oracle.needed(model, engine.batches())
    assert oracle.reached(model) == found
    assert set(plan.backend_keys) == found


DENSE = """
import json, oracle
from jitwarm import device
from jitwarm.proof.prove import prove_envelopes
active, found = device.activate("stub", "sm90"), []
for dcp, rows, longest in json.loads({cases!r}):
    engine = oracle.Engine(
        dcp=dcp, rows=rows, tokens=40, longest=longest, scores=2**15, prefill="fa4"
    )
    model, plan = engine.build(active)
    proof = prove_envelopes(model.envelopes(), plan)
    assert proof.holds, proof.findings
    found.append({{kernel.kernel: kernel.needed for kernel in proof.kernels}})
print(json.dumps(found))
"""


@pytest.mark.cutedsl
def test_dense_prefills_leave_the_selection_to_decodes(fresh_process: Any) -> None:
    if importlib.util.find_spec("flash_attn") is None:
        pytest.skip("flash-attn-4 is not installed")
    # Dense attention takes requests of up to 2,048 tokens, and up to 65,536 keys of their contexts:
    # 33 contexts of 2,047 tokens are more.
    selecting = {(5, 2048): False, (5, 2049): True, (32, 2048): False, (33, 2048): True}
    cases = [(dcp, *limits) for dcp in (1, 2) for limits in selecting]
    text = DENSE.format(cases=json.dumps(cases))
    for (dcp, *limits), needed in zip(
        cases, json.loads(fresh_process(text, path=(Path(__file__).parent,))), strict=True
    ):
        modes = 1 + selecting[tuple(limits)]
        assert needed["ConvertReqIndexToGlobalIndex"] == (modes if dcp == 1 else 1)
        assert needed.get("PackDCPTopkCandidates", 0) == (0 if dcp == 1 else modes)


@pytest.mark.parametrize("dcp", [1, 4])
def test_a_backend_that_selects_nothing(dcp: int, stub: Any) -> None:
    engine = oracle.Engine(dcp=dcp, backend="FLASHMLA")
    model, plan = engine.build(stub)
    found, _, _ = oracle.needed(model, engine.batches())
    assert oracle.reached(model) == found == set(plan.backend_keys)
    assert len(found) == (1 if dcp == 1 else 2)


@pytest.mark.parametrize(
    ("scenario", "selector", "rank", "needed"),
    [
        ("deepseek-v3.2-dcp", "dcp=1,arch=sm90", 0, 25),
        ("deepseek-v3.2-dcp", "dcp=8,arch=sm90", 7, 28),
        ("mla-blocks", "block=16,arch=sm90", 0, 25),
        ("dsv4-dcp", "dcp=1,arch=sm90", 0, 43),
        ("dsv4-dcp", "dcp=4,arch=sm90", 1, 46),
    ],
)
def test_the_plans_of_the_scenarios_are_proved(
    scenario: str, selector: str, rank: int, needed: int, stub: Any
) -> None:
    (case,) = load(SCENARIOS / f"{scenario}.toml").select((selector,))
    model, registry = build(case, rank, stub)
    plan = make_plan(registry)
    envelopes: Any = model
    proof = prove_envelopes(envelopes.envelopes(), plan)
    assert proof.holds, proof.findings
    assert sum(kernel.needed for kernel in proof.kernels) == needed == len(plan.backend_keys)
    assert not any(kernel.missing or kernel.unreached for kernel in proof.kernels)
