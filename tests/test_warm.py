"""Warm-up: each backend key once, all of them tried, and nothing left for the launches."""

from __future__ import annotations

import pytest
import torch

import plan_subjects as subjects
from jitwarm.config import EngineConfig, KernelConfig
from jitwarm.declare import declare, launch
from jitwarm.errors import BindingError, UsageError
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.warm import warm

pytestmark = pytest.mark.triton


@pytest.fixture(autouse=True)
def _alone(stub, outside):
    pass


def planned(*declarations):
    registry = JitWarmupRegistry()
    with registry.activate():
        for declaration, *args in declarations:
            declaration.register_warmup(*args)
    return make_plan(registry)


def counts(monitor):
    kinds = [event.kind for event in monitor.events]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def forget():
    for fn in (subjects.copy, subjects.fill, subjects.broken):
        fn.device_caches.clear()


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_backend_key_is_compiled_once_and_loaded(jobs):
    plan = planned((subjects.Copy, 16), (subjects.Copy, 32), (subjects.Fill, [1.0]))
    assert len(plan.items) == 7
    with Monitor("record") as monitor:
        report = warm(plan, jobs=jobs)
    assert counts(monitor) == {"compile": 5, "load": 5}
    assert {event.phase for event in monitor.events} == {"warm"}
    assert [outcome.item.backend_key for outcome in report.outcomes] == list(plan.backend_keys)
    assert {outcome.status for outcome in report.outcomes} == {"warmed"}
    assert (report.warmed, report.failed, report.jobs, report.depth) == (5, [], jobs, "loaded")
    report.raise_failures()


def test_launches_find_everything_ready():
    warm(planned((subjects.Copy, 16), (subjects.Fill, [1.0])), jobs=1)
    x = torch.zeros(64)
    with Monitor("error") as monitor:
        subjects.copy[(1,)](x, 18, BLOCK=16)
        subjects.copy[(1,)](x, 32, BLOCK=16)
        subjects.fill[(1,)](x, VALUE=1.0)
    assert monitor.events == []


def test_a_second_start_up_compiles_nothing():
    plan = planned((subjects.Copy, 16), (subjects.Fill, [1.0]))
    warm(plan, jobs=1)
    with Monitor("record") as monitor:
        assert warm(plan, jobs=1).warmed == 3
    assert monitor.events == []
    forget()
    with Monitor("record") as monitor:
        assert warm(plan, jobs=2).warmed == 3
    assert counts(monitor) == {"disk_hit": 3, "load": 3}


def test_the_depth_compiled_leaves_the_load_to_the_launch():
    plan = planned((subjects.Copy, 16))
    with Monitor("record") as monitor:
        report = warm(plan, jobs=1, depth="compiled")
        assert (counts(monitor), report.depth) == ({"compile": 2}, "compiled")
        subjects.copy[(1,)](torch.zeros(16), 17, BLOCK=16)
    assert counts(monitor) == {"compile": 2, "load": 1}


def test_switched_off_nothing_compiles_and_every_key_says_so():
    plan = planned((subjects.Copy, 16), (subjects.Raising,))
    with Monitor("record") as monitor:
        report = warm(plan, enabled=False)
    assert monitor.events == []
    assert [(outcome.status, outcome.reason) for outcome in report.outcomes] == [
        ("skipped", "warm-up is switched off")
    ] * 2
    assert report.enumeration_failures == ()
    report.raise_failures()


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_bad_key_costs_no_other_and_failures_come_together(jobs):
    plan = planned(
        (subjects.Raising,),
        (subjects.Broken,),
        (subjects.Unbindable,),
        (subjects.Copy, 16),
    )
    report = warm(plan, jobs=jobs)
    assert [(outcome.item.kernel, outcome.status) for outcome in report.outcomes] == [
        ("Broken", "warmed"),
        ("Broken", "failed"),
        ("Broken", "warmed"),
        ("Broken", "failed"),
        ("Unbindable", "warmed"),
        ("Unbindable", "warmed"),
        ("Copy", "warmed"),
    ]
    assert (report.warmed, len(report.failed)) == (5, 2)
    with pytest.raises(ExceptionGroup, match="4 kernels or keys could not be warmed") as group:
        report.raise_failures()
    raising, unbindable, one, other = group.value.exceptions
    assert type(raising) is LookupError
    assert raising.__notes__ == ["while enumerating the keys of Raising"]
    assert type(unbindable) is BindingError
    assert unbindable.__notes__[-1] == "while enumerating the keys of Unbindable"
    for error, outcome in zip((one, other), report.failed, strict=True):
        assert error.__notes__ == [f"while warming {outcome.item.declared} [{outcome.item.id}]"]
        assert outcome.item.declared.startswith("plan_subjects.broken(x_ptr=tensor(float32, ")
    with pytest.raises(ExceptionGroup) as again:
        report.raise_failures()
    assert len(again.value.exceptions[2].__notes__) == 1


def test_a_load_that_fails_is_a_failed_key(monkeypatch):
    from triton.compiler import compiler

    monkeypatch.setattr(compiler, "max_shared_mem", lambda device: -1)
    report = warm(planned((subjects.Copy, 16)), jobs=1)
    assert [outcome.status for outcome in report.outcomes] == ["failed", "failed"]
    assert type(report.failed[0].error).__name__ == "OutOfResources"
    assert warm(planned((subjects.Copy, 16)), jobs=1, depth="compiled").warmed == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_is_told_after_each_key(jobs):
    plan = planned((subjects.Copy, 16), (subjects.Fill, [1.0]))
    told = []
    warm(plan, jobs=jobs, progress=lambda *given: told.append(given))
    assert [(done, total) for done, total, _, _ in told] == [(1, 3), (2, 3), (3, 3)]
    assert {item.backend_key for _, _, item, _ in told} == set(plan.backend_keys)
    assert all(seconds >= 0 for *_, seconds in told)


def test_an_empty_plan_is_warm():
    report = warm(make_plan(JitWarmupRegistry()))
    assert (report.outcomes, report.warmed) == ((), 0)
    report.raise_failures()


def test_the_number_of_jobs(monkeypatch):
    plan = make_plan(JitWarmupRegistry())
    assert warm(plan, jobs=3).jobs == 3
    monkeypatch.setenv("JITWARM_JOBS", "5")
    assert warm(plan).jobs == 5
    for jobs in (0, -1):
        with pytest.raises(UsageError, match=f"jobs={jobs}: at least one thread"):
            warm(plan, jobs=jobs)


def test_an_unknown_depth_is_an_error():
    with pytest.raises(UsageError, match="unknown warm-up depth 'deep': use compiled or loaded"):
        warm(make_plan(JitWarmupRegistry()), depth="deep")


def test_the_registry_s_own_warmup_plans_warms_and_raises():
    registry = JitWarmupRegistry()
    with registry.activate():
        subjects.Copy.register_warmup(16)
    assert registry.warmup(jobs=1).warmed == 2
    with registry.activate():
        subjects.Raising.register_warmup()
    with pytest.raises(ExceptionGroup, match="1 kernel or key could not be warmed"):
        registry.warmup(jobs=1)


def test_equal_constants_are_three_keys_and_one_compile():
    """Why such a space is a finding: whichever comes first serves all."""
    plan = planned((subjects.Fill, [1, True, 1.0]))
    with Monitor("record") as monitor:
        assert warm(plan, jobs=1).warmed == 3
    assert counts(monitor) == {"compile": 1, "load": 1}
    assert [finding.kind for finding in plan.findings] == ["KEY-UNSTABLE"] * 2


def test_the_registry_honours_the_switch_of_the_configuration():
    config = EngineConfig(kernel_config=KernelConfig(enable_jit_warmup=False))
    registry = JitWarmupRegistry(config)
    with registry.activate():
        subjects.Copy.register_warmup(16)
    report = registry.warmup()
    assert [outcome.status for outcome in report.outcomes] == ["skipped"] * len(report.outcomes)
    assert len(report.outcomes) == 2
    assert registry.warmup(enabled=True).warmed == 2


def test_each_spelling_of_the_options_is_ready(stub):
    @declare(subjects.copy, name="Spelt")
    def spelt():
        yield launch(x_ptr=subjects.X, n=17, BLOCK=16)
        yield launch(x_ptr=subjects.X, n=17, BLOCK=16, num_warps=4)

    plan = planned((spelt,))
    assert (len(plan.items), len(plan.backend_keys)) == (2, 1)
    with Monitor("record") as monitor:
        report = warm(plan, jobs=2)
    assert report.warmed == 1
    assert counts(monitor) == {"compile": 1, "disk_hit": 1, "load": 2}
    x = torch.zeros(64)
    with Monitor("error") as monitor:
        subjects.copy[(1,)](x, 17, BLOCK=16)
        subjects.copy[(1,)](x, 17, BLOCK=16, num_warps=4)
    assert monitor.events == []


def test_spellings_that_only_compare_equal_are_keys_of_their_own(stub):
    @declare(subjects.copy, name="Spelt")
    def spelt():
        for pdl in (False, 0):
            yield launch(x_ptr=subjects.X, n=17, BLOCK=16, launch_pdl=pdl)

    plan = planned((spelt,))
    assert len(plan.backend_keys) == 2  # Triton's disk hash tells them apart, too
    warm(plan, jobs=1)
    x = torch.zeros(64)
    with Monitor("error") as monitor:
        subjects.copy[(1,)](x, 17, BLOCK=16, launch_pdl=False)
        subjects.copy[(1,)](x, 17, BLOCK=16, launch_pdl=0)
    assert monitor.events == []
