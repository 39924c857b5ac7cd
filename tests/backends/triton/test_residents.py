"""Launches as Triton finds them in memory behind a warm-up, told without one."""

from __future__ import annotations

import pytest

from jitwarm.backends.triton.binder import bind_recipe
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.backends.triton.residents import Residents
from jitwarm.backends.triton.tuning import TunedRecipe
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.warm import warm
from plan_subjects import Fill, X, fill

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("stub")]


def recipe(value, kind=TritonRecipe, **options):
    arguments = (("x_ptr", X), ("VALUE", value))
    return kind("plan_subjects.fill", arguments, tuple(options.items()))


def residents(*recipes):
    return Residents((bind_recipe(fill, one).text, one) for one in recipes)


def test_a_launch_is_served_by_its_spelling():
    warmed = residents(recipe(1.5), recipe(2.5, num_warps=4))
    for served in (recipe(1.5), recipe(2.5, num_warps=4)):
        asked = warmed.ask(served)
        assert (asked.own, asked.respelt) == (asked.text, None)
    for other in (recipe(1.5, num_warps=4), recipe(2.5), recipe(1.5, debug=False, num_warps=4)):
        asked = warmed.ask(other)
        assert asked.respelt.text == asked.own == asked.text
    assert dict(warmed.ask(recipe(1.5, num_warps=4)).respelt.spelling)["num_warps"] == "4"
    assert warmed.ask(recipe(3.5)).respelt is None  # not warmed at all
    assert warmed.ask(recipe(1.5, num_warps=8)).respelt is None


def test_equal_constants_are_one_look_up():
    warmed = residents(recipe(1))
    asked = warmed.ask(recipe(True))
    assert "VALUE:constexpr=True" in asked.own and "VALUE:constexpr=1]" in asked.text
    both = residents(recipe(1), recipe(True))
    assert both.ask(recipe(True)).text == asked.own  # planned itself
    # A launch leaves nothing behind: the next may find what it would not have found after it.
    assert (warmed.ask(recipe(2.0)).text, warmed.ask(recipe(2)).text) == (
        bind_recipe(fill, recipe(2.0)).text,
        bind_recipe(fill, recipe(2)).text,
    )


def test_of_an_autotuned_kernel_nothing_is_said():
    warmed = residents(recipe(1.5), recipe(2.5, TunedRecipe))
    assert warmed.spellings == {}
    assert warmed.ask(recipe(1.5, num_warps=4)).respelt is None


def test_it_is_what_a_real_warm_up_leaves():
    registry = JitWarmupRegistry(None)
    with registry.activate():
        Fill.register_warmup((1, True, 0.0, 2.5))
    plan = make_plan(registry)
    told = Residents((item.backend_key, item.recipe) for item in plan.items)
    with told.in_memory():
        cache, memo = map(dict, fill.device_caches[0][:2])
    assert not fill.device_caches[0][0] and not fill.device_caches[0][1]
    warm(plan, jobs=1, depth="compiled")
    warmed, known = fill.device_caches[0][:2]
    assert len(cache) == 3 and (set(cache), memo) == (set(warmed), known)
