"""Replays by keys: what traffic needs against the plan, on the stub device, without a compiler."""

from __future__ import annotations

import pytest
import torch

from jitwarm.gate.replay import replay_keys
from jitwarm.plan import Plan, PlanItem, make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.scenario import Case, Scheduler, Traffic
from plan_subjects import Copy, Fill, copy, fill

pytestmark = pytest.mark.triton

CASE = Case(
    1,
    "own",
    "some.where:Model",
    scheduler=Scheduler(max_num_seqs=8, max_num_batched_tokens=64),
    traffic=Traffic(steps=40),
)


class Model:
    layers = 1

    def __init__(self):
        self.x, self.steps = torch.ones(64), 0

    def step(self, batch):
        self.steps += 1
        copy[(1,)](self.x, 17, BLOCK=16)
        fill[(1,)](self.x, VALUE=1.5)


class Idle(Model):
    def step(self, batch):
        self.steps += 1


def planned(*registered):
    registry = JitWarmupRegistry(None)
    with registry.activate():
        for kernel, argument in registered:
            kernel.register_warmup(argument)
    return make_plan(registry)


def test_everything_is_planned(stub):
    model = Model()
    found = replay_keys(CASE, 3, model, planned((Copy, 16), (Fill, (1.5, 2.5))), 5)
    assert (found.rank, found.steps, model.steps) == (3, 5, 5)
    assert (found.launches, found.needed) == (10, 2)
    assert (found.misses, found.untold) == ((), ())


def test_what_is_not_planned_is_explained(stub):
    found = replay_keys(CASE, 0, Model(), planned((Copy, 16), (Fill, (2.5,))), 5)
    (miss,) = found.misses
    assert (miss.kernel, miss.count, miss.rank) == ("Fill", 5, 0)
    assert miss.key.startswith("plan_subjects.fill[x_ptr:*fp32/D; VALUE:constexpr=1.5]")
    assert miss.finding.kind == "MISS"
    assert (miss.finding.warmed, miss.finding.seen) == ("constexpr=2.5", "constexpr=1.5")


def test_a_kernel_that_nobody_planned(stub):
    found = replay_keys(CASE, 0, Model(), planned((Copy, 16)), 5)
    assert [(miss.kernel, miss.finding.kind) for miss in found.misses] == [
        ("plan_subjects.fill", "UNDECLARED")
    ]


def test_it_may_be_part_of_one_that_owns_its_compile(stub):
    plan = planned((Copy, 24))
    own = PlanItem("Own", "opaque", "Own(n=1)", "own.Own[n=1]", None, ())
    both = Plan((*plan.items, own), plan.rows, plan.funnel, (), (), 0.0)
    found = replay_keys(CASE, 0, Model(), both, 5)
    # Copy is planned, with other keys: no opaque kernel explains that.
    assert [miss.kernel for miss in found.misses] == ["Copy"]
    (untold,) = found.untold
    assert untold.startswith("plan_subjects.fill[")


def test_a_model_that_launches_nothing(stub):
    found = replay_keys(CASE, 0, Idle(), planned((Copy, 16)), 5)
    assert (found.steps, found.launches, found.needed, found.misses) == (5, 0, 0, ())
