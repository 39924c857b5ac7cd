"""What explanations know of a plan."""

from __future__ import annotations

import msgspec
import pytest

from jitwarm import JitWarmupRegistry, make_plan, owner
from jitwarm.judge.planned import Planned, path_of
from jitwarm.observe.events import Event
from jitwarm.plan import PlanKey
from plan_subjects import Copy

A, B = (f"m.k[n:i32/{cls}]{{cuda:90}}" for cls in ("", "D"))


def test_a_plan_its_keys_its_items_and_texts_are_all_good(stub):
    registry = JitWarmupRegistry()
    with registry.activate():
        for layer in range(61):
            with owner(f"layers.{layer:02}"):
                Copy.register_warmup(16)
    plan = make_plan(registry)
    forms = (plan, plan.keys(), plan.items, [item.backend_key for item in plan.items])
    texts = [list(Planned(form).texts) for form in forms]
    assert texts == [list(plan.backend_keys)] * 4
    key = plan.items[0].backend_key
    for form in forms[:3]:
        planned = Planned(form)
        assert planned.name(key) == "Copy"
        assert planned.owners(key) == ("layers.00", "60 more")
    assert Planned(forms[3]).name(key) == path_of(key) == "plan_subjects.copy"
    assert Planned(forms[3]).owners(key) == ()


def test_the_layers_are_stored_in_short():
    one = PlanKey("K", "triton", "K(17)", A, "head", 1)
    many = PlanKey("K", "triton", "K(16)", B, "layers.0", 61)
    assert Planned([one]).owners(A) == ("head",)
    assert Planned([one, many]).owners(A) == ("layers.0", "60 more")
    assert Planned([one]).owners("m.other[]{cuda:90}") == ()


def test_a_kernel_with_two_names_and_a_key_of_neither():
    planned = Planned([PlanKey("K", "triton", "", A), PlanKey("Wide", "triton", "", B)])
    assert (planned.name(A), planned.name(B)) == ("K", "Wide")
    assert planned.name("m.k[n:i64]{cuda:90}") in ("K", "Wide")
    assert planned.name("m.other[]") == "m.other"


def test_nothing_planned():
    assert not Planned() and not Planned(None) and not Planned([])
    assert Planned([A])
    planned = Planned([A])
    assert Planned.of(planned) is planned
    assert list(Planned.of([A]).texts) == [A]


@pytest.mark.parametrize(("place", "shown"), [("a.py:1", "a.py:1"), ("", "m.f:1")])
def test_the_place_of_the_first_event_is_the_site(place, shown):
    planned = Planned([PlanKey("K", "triton", "K(17)", A, "head", 1, {"n": 17})])
    event = Event("compile", "m.k", B, "", 1.0, {}, "serve", 0, site="m.f:1", place=place)
    event = msgspec.structs.replace(event, values={"n": 32})
    finding = planned.explain(B, event=event)
    assert (finding.site, finding.owners) == (shown, ("head",))
    assert finding.message == (
        "K: `n`: warmed as i32 not divisible by 16 (17), launched as i32 divisible by 16 (32)"
    )


def test_an_explanation_takes_nothing_apart_after_prepaying():
    from jitwarm.judge.explain import taken_apart

    taken_apart.cache_clear()
    planned = Planned([A, B])
    planned.prepay()
    before = taken_apart.cache_info().misses
    planned.explain("m.k[n:constexpr=1]{cuda:90}")
    assert (before, taken_apart.cache_info().misses) == (2, 3)  # the missed key itself


def test_a_raw_key_is_of_its_kernel():
    """What a launch has that was compiled where nobody watched: Triton's own string."""
    raw = "m.k [('i32', '')]{'debug': False}"
    finding = Planned([PlanKey("K", "triton", "", A)]).explain(raw)
    assert (path_of(raw), finding.kernel) == ("m.k", "K")
    assert finding.message == (
        "K was launched with a key that nobody saw Triton compile, so it is held against no plan"
    )
    assert Planned().explain(raw).kernel == "m.k"


def test_another_object_of_a_kernel():
    finding = Planned(["m.k#0a1b2c3d[n:i32]{cuda:90}"]).explain("m.k#0a1b2c3d~12[n:i32]{cuda:90}")
    assert finding.message == (
        "m.k#0a1b2c3d~12: another object of this kernel was launched, and no key of that was warmed"
    )
    assert finding.advice.startswith("define the kernel once, at module level: ")
