"""The envelopes of DeepSeek-V4 against steps: by brute force for small engines, by traffic for
those of the scenarios.
"""

from __future__ import annotations

import dataclasses
import sys
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from jitwarm.model import build
from jitwarm.plan import make_plan
from jitwarm.proof.prove import prove_envelopes
from jitwarm.scenario_file import load
from jitwarm.traffic import batches

sys.path.insert(0, str(Path(__file__).parent))

from oracle import needed, reached
from oracle_v4 import ENGINES, Engine

ROOT = Path(__file__).parents[2]


@pytest.mark.triton
@pytest.mark.parametrize("name", ENGINES)
def test_steps_envelopes_and_plan_have_the_same_keys(name, stub):
    engine = ENGINES[name]
    model, plan = engine.build(stub)
    found, steps, _ = needed(model, engine.batches())
    assert steps > 20
    assert found == reached(model)
    assert found == set(plan.backend_keys)


CASES = [
    ("deepseek-v4-flash", "seqs=64,arch=sm90"),
    ("deepseek-v4-vision", "model=deepseek-v4-pro,arch=sm90"),
    ("deepseek-v4-dspark", "spec=15,arch=sm90"),
    ("deepseek-v4-first-token", "arch=sm90"),
]


def model_of(scenario, selector, active):
    (case,) = load(ROOT / "scenarios" / f"{scenario}.toml").select((selector,))
    model, registry = build(case, 0, active)
    return case, model, make_plan(registry)


@pytest.mark.triton
@pytest.mark.parametrize(("scenario", "selector"), CASES)
def test_traffic_stays_inside_the_envelopes(scenario, selector, stub):
    case, model, _ = model_of(scenario, selector, stub)
    # A layer of each kind launches what all of them do.
    model._step.ratios = tuple(dict.fromkeys(model._step.ratios))
    other = msgspec.structs.replace(case.traffic, seed=7, step=())
    case = msgspec.structs.replace(case, traffic=other)
    found, _, _ = needed(model, islice(batches(case), 150))
    assert len(found) > 15
    assert found <= reached(model)


# Needed and planned; docs/kernels.md has the sums.
PROVED = {
    ("deepseek-v4-pro", "seqs=256,arch=sm90"): 43,
    ("deepseek-v4-pro", "seqs=1024,arch=sm90"): 45,
    ("deepseek-v4-flash", "seqs=64,arch=sm90"): 43,
    ("deepseek-v4-vision", "model=deepseek-v4-flash,arch=sm90"): 64,
    ("deepseek-v4-vision", "model=deepseek-v4-pro,arch=sm90"): 60,
    ("deepseek-v4-dspark", "spec=3,arch=sm90"): 44,
    ("deepseek-v4-first-token", "arch=sm90"): 24,
}


@pytest.mark.triton
@pytest.mark.parametrize(("scenario", "selector"), PROVED)
def test_the_plan_is_proved_exact(scenario, selector, stub):
    _, model, plan = model_of(scenario, selector, stub)
    proof = prove_envelopes(model.envelopes(), plan)
    assert proof.findings == ()
    assert proof.holds
    assert {kernel.verdict for kernel in proof.kernels} == {"PROVED"}
    assert [kernel.kernel for kernel in proof.kernels if kernel.missing or kernel.unreached] == []
    needs = sum(kernel.needed for kernel in proof.kernels)
    assert needs == sum(k.planned for k in proof.kernels) == PROVED[scenario, selector]


@pytest.mark.triton
def test_an_envelope_that_leaves_decodes_out_is_told_by_a_step(stub):
    """What the check is for: without decodes in front, slices are always aligned."""
    model, _ = Engine().build(stub)
    everything = list(model.envelopes())
    lacking = [
        dataclasses.replace(one, where=lambda decodes, groups, start: decodes == 0)
        if "groups" in one.parameters
        else one
        for one in everything
    ]
    assert len(lacking) == len(everything)

    def keys(envelopes):
        return {key for one in prove_envelopes(envelopes, ()).kernels for key in one.missing_keys}

    gone = keys(everything) - keys(lacking)
    assert {key.partition("[")[0].rpartition(".")[2] for key in gone} == {
        "_combine_topk_swa_indices"
    }
    found, _, _ = needed(model, Engine().batches())
    assert found - keys(lacking) == gone
