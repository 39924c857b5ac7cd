"""A model that warms in a step: what its measuring process tells, and what it is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jitwarm import harness
from jitwarm.jobs import Job
from jitwarm.judge.coverage import cover
from jitwarm.scenario import Case, Scheduler, Traffic

pytestmark = pytest.mark.triton

ROOT = Path(__file__).parents[1]
CASE = Case(
    1,
    "own",
    "warming:Model",
    scheduler=Scheduler(max_num_seqs=8, max_num_batched_tokens=64),
    traffic=Traffic(steps=40),
)
MODEL = """
import torch
from jitwarm import JitWarmupRegistry
from plan_subjects import Copy, Fill, copy


class Model:
    layers = 1

    def __init__(self, config, device):
        self.config, self.x, self.steps = config, torch.ones(64), 0
        Copy.register_warmup(16)

    def step(self, batch):
        self.steps += 1
        copy[(1,)](self.x, 17, BLOCK=16)
        if self.steps == 3:
            registry = JitWarmupRegistry(self.config)
            with registry.activate():
                Fill.register_warmup((1.5,))
            registry.warmup()
        copy[(1,)](self.x, 16, BLOCK=16)
"""


@pytest.mark.parametrize(("mode", "kind", "launched"), [("record", "compile", 40),
                                                        ("error", "refused", 39)])  # fmt: skip
def test_a_warm_up_in_a_step_is_a_miss(tmp_path, monkeypatch, mode, kind, launched):
    (tmp_path / "warming.py").write_text(MODEL)
    path = os.pathsep.join(map(str, (tmp_path, ROOT / "tests", ROOT)))
    monkeypatch.setenv("PYTHONPATH", path)
    job = Job(CASE, "loaded", (0,), 40, "stub", 1, mode, progress=False)
    answer = harness.run_process(job, tmp_path / "caches", tmp_path)
    late = [event for event in answer.observed.events if event.late and event.kind != "load"]
    assert [(event.kind, event.phase, event.step) for event in late] == [(kind, "warm", 2)]
    # Refused, the rest of its step is lost.
    assert sorted(answer.observed.launches.values()) == [launched, 40]
    coverage = cover(answer.warmed.keys, answer.warmed.ready, answer.observed)
    assert (coverage.needed, coverage.missed, coverage.unreached) == (3, 1, 0)
    assert [miss.first_step for miss in coverage.misses] == [2]
