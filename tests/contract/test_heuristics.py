"""Kernels inside triton.heuristics: planned with what the heuristics evaluate to."""

from __future__ import annotations

import pytest
import torch

import tuned_subjects as subjects
from jitwarm import JitWarmupRegistry, Monitor
from jitwarm.backends.triton.keytext import parse_key
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.plan import make_plan

pytestmark = pytest.mark.triton


def plan_of(*kernels):
    registry = JitWarmupRegistry()
    with registry.activate():
        for kernel in kernels:
            kernel.register_warmup()
    return registry, make_plan(registry)


@pytest.mark.parametrize("kernel", [subjects.JudgedKernel(), subjects.judge], ids=["class", "case"])
def test_heuristics_are_evaluated_for_the_plan_and_serve_the_launches(stub, kernel):
    registry, plan = plan_of(kernel)
    assert {item.backend for item in plan.items} == {"triton"}
    assert all(type(item.recipe) is TritonRecipe for item in plan.items)
    fields = [parse_key(item.backend_key) for item in plan.items]
    assert {path for path, _ in fields} == {"tuned_subjects.judged"}
    assert sorted((f["n"], f["EVEN"], f["WIDE"]) for _, f in fields) == [
        ("i32/", "constexpr=False", "constexpr=False"),
        ("i32/", "constexpr=False", "constexpr=True"),
        ("i32/", "constexpr=True", "constexpr=False"),
        ("i32/", "constexpr=True", "constexpr=True"),
    ]
    storage = torch.empty(32)
    with Monitor("record", count_hits=True) as monitor:
        assert registry.warmup().warmed == 4
        monitor.begin_serving()
        before = monitor.count()
        for n in (2, 4, 5, 7):  # 4 and 5 were declared; the class of n is the same for all
            for stride in (1, 2, 3):
                kernel(storage[::stride], n)
        assert monitor.count() == before == 8
        assert sorted(monitor.launches()) == sorted(plan.backend_keys)
        kernel(storage[1:], 4)
    assert monitor.count() == before + 2


def test_compile_makes_the_same_key_ready(stub):
    with Monitor("record") as monitor:
        subjects.JudgedKernel().warmup()
        for key in subjects.judge.get_warmup_keys():
            subjects.judge.compile(key)
    assert monitor.count("compile") == 4
    assert {event.kernel for event in monitor.events} == {"tuned_subjects.judged"}


def test_the_declared_text_is_that_of_the_key(stub):
    [first, *_] = subjects.JudgedKernel().enumerate_keys(None, (), {}).declared
    assert first.text == "Judged(n=4, stride=1)"
    assert dict(first.recipe.arguments)["EVEN"] is True
