"""Replays by keys: what traffic needs against the plan, on the stub device, without a compiler."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from jitwarm.contract import JitKernel
from jitwarm.declare import launch
from jitwarm.declare.declaration import Declaration
from jitwarm.gate.replay import replay_keys
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.scenario import Case, Scheduler, Traffic
from plan_subjects import Copy, Fill, X, copy, fill
from tuned_subjects import native

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


class Spelling(Model):
    """Launches as they are given, each a function and its arguments behind the tensor."""

    def __init__(self, *launches):
        super().__init__()
        self.launches = launches

    def step(self, batch):
        for fn, arguments in self.launches:
            fn[(1,)](self.x, **arguments)


def replayed(fn, declared, launched):
    """A replay of launches of `fn` against a plan that declares it in other words."""
    cases = [launch(x_ptr=X, **case) for case in declared]
    declaration = Declaration(fn, lambda: cases, "Own")
    registry = JitWarmupRegistry(None)
    with registry.activate():
        declaration.register_warmup()
    return replay_keys(CASE, 0, Spelling(*((fn, one) for one in launched)), make_plan(registry), 5)


SHAPE = {"n": 17, "BLOCK": 16}


@pytest.mark.parametrize(
    ("declared", "launched", "said"),
    [
        ({}, {"num_warps": 4}, ("num_warps", "absent", "4")),
        ({"num_warps": 4}, {}, ("num_warps", "4", "absent")),
        (
            {"num_warps": 8, "num_stages": 2},
            {"num_stages": 2, "num_warps": 8},
            ("num_warps, num_stages", "num_warps, num_stages", "num_stages, num_warps"),
        ),
    ],
)
def test_options_that_are_spelt_in_another_way(stub, declared, launched, said):
    found = replayed(copy, [SHAPE | declared], [SHAPE | launched])
    (miss,) = found.misses
    assert (miss.kernel, miss.count, found.needed) == ("Own", 5, 1)
    assert miss.finding.kind == "DISK-HIT"
    assert (miss.finding.field, miss.finding.warmed, miss.finding.seen) == said
    assert miss.finding.advice.startswith("write the options in the declaration as the launch does")
    both = [SHAPE | declared, SHAPE | launched]
    assert replayed(copy, both, both).misses == ()


def test_the_nearest_spelling_is_named(stub):
    declared = [SHAPE | {"num_ctas": 1, "num_stages": 3}, SHAPE | {"num_warps": 4}]
    (miss,) = replayed(copy, declared, [SHAPE | {"num_warps": 4, "num_ctas": 1}]).misses
    assert (miss.finding.field, miss.finding.seen) == ("num_ctas", "1")


@pytest.mark.parametrize(
    ("declared", "launched"),
    [([1], [True]), ([1], [1, 1.0]), ([1], [np.int64(1)]), ([0.0], [-0.0]), ([True, 1], [1.0])],
)
def test_constants_that_triton_takes_for_one(stub, declared, launched):
    cases = [{"VALUE": value} for value in declared]
    assert replayed(fill, cases, [{"VALUE": value} for value in launched]).misses == ()
    (miss,) = replayed(fill, cases, [{"VALUE": 2}]).misses
    assert miss.finding.kind == "MISS"


def test_a_replay_leaves_the_caches_as_they_were(stub):
    caches = fill.device_caches[0]
    before = dict(caches[0]), dict(caches[1])
    replayed(fill, [{"VALUE": 1}], [{"VALUE": True}, {"VALUE": 7}])
    caches = fill.device_caches[0]
    assert (dict(caches[0]), dict(caches[1])) == before


def test_caches_that_somebody_clears_while_serving(stub):
    class Clearing(Spelling):
        def step(self, batch):
            super().step(batch)
            copy.device_caches.clear()

    plan = planned((Copy, 16))
    (miss,) = replay_keys(CASE, 0, Clearing((copy, SHAPE)), plan, 5).misses
    assert miss.finding.kind == "DISK-HIT"
    assert "caches were cleared meanwhile" in miss.finding.message


class OwnKernel(JitKernel["OwnKernel.CompileKey"]):
    """Its compile is its own, and so is what it launches."""

    @dataclass(frozen=True)
    class CompileKey:
        value: float

    def dispatch(self, *, value):
        return self.CompileKey(value)

    def get_warmup_keys(self, config):
        return [self.CompileKey(1.5)]

    def compile(self, key):
        self._compiled_cache[key] = lambda x: fill[(1,)](x, VALUE=key.value)

    def executor(self, value):
        return self._get_or_compile(self.dispatch(value=value))

    def __call__(self, x, value):
        fill[(1,)](x, VALUE=value)


class Owning(Model):
    """Launches `fill` in the ways that `launch` says."""

    def __init__(self, own, launch):
        super().__init__()
        self.own, self.launch = own, launch

    def step(self, batch):
        copy[(1,)](self.x, 17, BLOCK=16)
        self.launch(self)


def owning(launch):
    own = OwnKernel()
    registry = JitWarmupRegistry(None)
    with registry.activate():
        Copy.register_warmup(24)
        own.register_warmup()
    return replay_keys(CASE, 0, Owning(own, launch), make_plan(registry), 5)


@pytest.mark.parametrize(
    "launch",
    [lambda model: model.own(model.x, 1.5), lambda model: model.own.executor(1.5)(model.x)],
)
def test_what_one_that_owns_its_compile_launches_is_not_judged(stub, launch):
    found = owning(launch)
    # Copy is planned, with other keys: no opaque kernel explains that.
    assert [miss.kernel for miss in found.misses] == ["Copy"]
    (untold,) = found.untold
    assert untold.startswith("plan_subjects.fill[")


def test_what_is_launched_beside_it_is_missed(stub):
    found = owning(lambda model: fill[(1,)](model.x, VALUE=1.5))
    assert [miss.kernel for miss in found.misses] == ["Copy", "plan_subjects.fill"]
    assert found.untold == ()


class Tuning(Model):
    def step(self, batch):
        for n in (8, 40):
            native[(4,)](self.x, n, 3)


def test_a_choice_that_nobody_planned_is_missed_at_every_rank(stub):
    """Ranks of one process share their autotuners, whose choices must not outlive a replay."""
    registry = JitWarmupRegistry(None)
    with registry.activate():
        native.register_warmup()  # n = 8 and 24
    plan = make_plan(registry)
    for rank in (0, 1):
        (miss,) = replay_keys(CASE, rank, Tuning(), plan, 5).misses
        assert (miss.kernel, miss.rank, miss.count, miss.first_step) == ("native", rank, 1, 0)
        assert (miss.finding.kind, miss.finding.field) == ("AUTOTUNE", "n")
        assert (miss.finding.warmed, miss.finding.seen) == ("8, 24", "40")


def test_a_model_that_launches_nothing(stub):
    found = replay_keys(CASE, 0, Idle(), planned((Copy, 16)), 5)
    assert (found.steps, found.launches, found.needed, found.misses) == (5, 0, 0, ())


class WarmingLate(Model):
    """Warms in its third step what nobody planned, and what is planned; launches the first."""

    def step(self, batch):
        self.steps += 1
        copy[(1,)](self.x, 17, BLOCK=16)
        if self.steps == 3:
            registry = JitWarmupRegistry(None)
            with registry.activate():
                Fill.register_warmup((1.5, 2.5))
                Copy.register_warmup(16)
            registry.warmup()
        if self.steps >= 3:
            fill[(1,)](self.x, VALUE=1.5)


def test_a_warm_up_in_a_step_is_a_miss_and_launches_nothing(stub):
    found = replay_keys(CASE, 0, WarmingLate(), planned((Copy, 16)), 5)
    assert (found.launches, found.needed) == (8, 3)
    late = {miss.key.partition("VALUE:constexpr=")[2][:3]: miss for miss in found.misses}
    assert {value: miss.count for value, miss in late.items()} == {"1.5": 3, "2.5": 0}
    assert {miss.finding.message.partition(": ")[2] for miss in found.misses} == {
        "a warm-up came to this key after start-up was over"
    }


class Overlapping(Model):
    """Hands its launches to a thread; the last of them needs another key."""

    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(1)
        self.gate = threading.Event()

    def step(self, batch):
        self.steps += 1
        n = 17 if self.steps < 5 else 1
        self.pool.submit(lambda: self.gate.wait() and copy[(1,)](self.x, n, BLOCK=16))
        if self.steps == 5:
            threading.Timer(0.1, self.gate.set).start()


def test_launches_that_come_after_the_last_step_are_waited_for(stub):
    found = replay_keys(CASE, 0, Overlapping(), planned((Copy, 16)), 5)
    assert (found.launches, found.running) == (5, ())
    assert [miss.count for miss in found.misses] == [1]


class Leaving(Model):
    def __init__(self):
        super().__init__()
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.end.wait, name="helper")
        self.thread.start()


def test_a_thread_that_still_runs_is_named(stub):
    model = Leaving()
    try:
        assert replay_keys(CASE, 0, model, planned((Copy, 16)), 5).running == ("helper",)
    finally:
        model.end.set()
        model.thread.join()
