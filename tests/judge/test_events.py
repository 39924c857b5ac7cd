"""Events to findings: one finding for each key and cause, whatever the number of ranks."""

from __future__ import annotations

import msgspec
import pytest

from jitwarm.judge.events import before_capture, blame, judge, redundant_seconds
from jitwarm.judge.planned import Planned
from jitwarm.keys import key_id
from jitwarm.observe.events import Event
from jitwarm.plan import PlanKey

A, B, C = (f"m.k[n:i32/{cls}]{{cuda:90}}" for cls in ("", "D", "1"))
TUNED = "m.k[n:64]{tune}"
PLAN = [
    PlanKey("K", "triton", "K(17)", A, "layers.0.attn", 61, {"n": 17}),
    PlanKey("K", "triton", "K(16)", B, "layers.0.attn", 61, {"n": 16}),
]


def event(kind, key=A, ms=10.0, phase="serve", rank=0, step=0, **more):
    path = key.partition("[")[0]
    return Event(kind, path, key, key_id(key), ms, {}, phase, step, "", rank, **more)


def warm(kind, key=A, ms=10.0, rank=0):
    return event(kind, key, ms, "warm", rank, -1)


def kinds(findings):
    return [finding.kind for finding in findings]


def test_nothing_says_nothing():
    assert judge([]) == judge([], PLAN) == ()
    assert judge([warm("compile"), warm("load")], PLAN) == ()


def test_a_late_compile_with_its_load_is_one_miss():
    late = [
        event("compile", C, 50.0, step=4, place="serve.py:7", site="serve.step:7"),
        event("load", C),
    ]
    [finding] = judge([warm("compile", A), warm("compile", B), *late], PLAN)
    assert (finding.kind, finding.kernel, finding.field) == ("MISS", "K", "n")
    assert finding.site == "serve.py:7"
    assert finding.owners == ("layers.0.attn", "60 more")
    assert finding.message == (
        "K: `n`: warmed as i32 divisible by 16 or i32 not divisible by 16 (16, 17), launched as "
        "i32 equal to 1 (50.0 ms)"
    )


def test_a_warm_up_after_start_up_is_judged_as_serving_is():
    late = [
        msgspec.structs.replace(warm(kind, key), serving=True)
        for kind, key in (("compile", C), ("load", A), ("tune", TUNED), ("failed", B))
    ]
    for enabled in (True, False):
        found = judge([warm("compile", A), *late], PLAN, enabled=enabled)
        late_ones = [one for one in found if one.kind != "GATE-IGNORED"]
        assert kinds(late_ones) == ["MISS", "NOT-EXECUTED", "AUTOTUNE", "MISS"]
        assert len(found) - len(late_ones) == (not enabled)
    message = "K: a warm-up came to this key after start-up was over (10.0 ms)"
    assert found[1].message == found[-1].message == message


def test_without_a_plan_a_miss_is_compared_with_what_was_made_at_start_up():
    [finding] = judge([warm("compile", A), event("compile", B)])
    assert (finding.kind, finding.kernel, finding.warmed) == ("MISS", "m.k", "i32/")
    assert kinds(judge([event("compile", B)])) == ["UNDECLARED"]


def test_a_planned_key_that_was_not_made_ready():
    [finding] = judge([event("compile", A)], PLAN, ready=[B])
    assert finding.message == "K: declared, but this key was not made ready (10.0 ms)"
    [finding] = judge([event("compile", A)], PLAN)
    assert finding.message == "K was warmed with this key, and yet it was compiled again (10.0 ms)"


@pytest.mark.parametrize("kind", ["compile", "failed", "skipped", "refused"])
def test_several_ranks_are_one_finding(kind):
    late = [event(kind, C, 2.0, rank=rank) for rank in (0, 1, 2, 5)]
    findings = [one for one in judge(late, PLAN) if one.kind != "DUP"]
    assert kinds(findings) == ["MISS"]
    took = "" if kind == "refused" else "8.0 ms, "
    assert findings[0].message.endswith(f" ({took}ranks 0-2, 5)")


def test_a_disk_hit_is_no_compile():
    [finding] = judge([event("disk_hit", C, 3.0), event("load", C)], PLAN)
    assert (finding.kind, finding.field, finding.seen) == ("DISK-HIT", "n", "i32/1")
    assert finding.message.startswith("K was read from disk while serving (3.0 ms): `n`: warmed as")
    [finding] = judge([event("disk_hit", A, 3.0)], PLAN)
    assert finding.kind == "DISK-HIT"
    assert "spells its options in another way" in finding.message
    [finding] = judge([event("disk_hit", C, 3.0)])
    assert finding.message == (
        "m.k was read from disk while serving (3.0 ms): no key of it was warmed"
    )


def test_a_compile_beside_a_disk_hit_of_another_rank_is_a_miss():
    assert kinds(judge([event("disk_hit", C, rank=1), event("compile", C)], PLAN)) == ["MISS"]


def test_a_tuning_holds_its_compiles():
    late = [
        event("compile", C, in_tuning=True),
        event("load", C, in_tuning=True),
        event("tune", TUNED, 12.0, configs=2, place="serve.py:9"),
    ]
    [finding] = judge(late, PLAN)
    assert (finding.kind, finding.kernel, finding.site) == ("AUTOTUNE", "K", "serve.py:9")
    assert finding.message == (
        "K timed 2 configurations against each other while serving, for 12.0 ms; 1 of them "
        "compiled meanwhile"
    )


def test_a_tuning_names_what_was_chosen_at_start_up():
    chosen = PlanKey("K", "opaque", "K(1) choice for m.k[n:1]{tune} (tuned)", "m.k[1]")
    [finding] = judge([event("tune", TUNED, configs=2)], [*PLAN, chosen])
    assert (finding.field, finding.warmed, finding.seen) == ("n", "1", "64")
    assert finding.advice == "declare a case with `n=64`"


def test_a_refusal_inside_of_a_tuning_that_never_came_about_is_a_miss():
    assert kinds(judge([event("refused", C, in_tuning=True)], PLAN)) == ["MISS"]
    other = event("tune", "m.other[]{tune}")
    found = judge([event("compile", C, in_tuning=True), other], PLAN)
    assert kinds(found) == ["MISS", "AUTOTUNE"]


def test_a_load_of_what_was_compiled_at_start_up():
    late = [event("load", A, 20.0, rank=rank) for rank in (0, 1)]
    [finding] = judge([warm("compile"), *late], PLAN)
    assert (finding.kind, finding.kernel, finding.seen) == ("NOT-EXECUTED", "K", A)
    assert finding.message == (
        "K was compiled at start-up and loaded by its first launch while serving (40.0 ms, ranks "
        "0-1)"
    )
    [finding] = judge([event("load", "triton_poi_fused_0", 1.0)], PLAN)
    assert finding.message.startswith("triton_poi_fused_0 was compiled where nobody watched and l")
    assert "depth `loaded`" in finding.advice


def test_one_rank_misses_and_another_only_loads():
    late = [event("compile", A), event("load", A), event("load", A, rank=1)]
    assert kinds(judge([warm("compile", A, rank=1), *late], PLAN)) == [
        "MISS",
        "NOT-EXECUTED",
        "DUP",
    ]


CAPTURED = {
    "load": ("was loaded while", "warm up to depth `loaded`, or launch it once before"),
    "tune": ("was tuned while", "tune it before the capture"),
    "trace": ("was traced while", "launch what cute.compile returned"),
    "compile": ("was compiled while", "warm it up to depth `loaded` before the capture"),
    "disk_hit": ("was read from disk while", "warm it up to depth `loaded` before the capture"),
    "refused": ("was about to be compiled while", "warm it up to depth `loaded` before the capt"),
}


@pytest.mark.parametrize("kind", CAPTURED)
def test_in_a_capture(kind):
    words, advice = CAPTURED[kind]
    [finding] = judge([event(kind, C, phase="capture")], PLAN)
    assert (finding.kind, finding.kernel) == ("CAPTURE-UNSAFE", "K")
    assert f"K {words} a graph was captured (10.0 ms)" in finding.message
    assert advice in finding.advice
    if kind in ("compile", "disk_hit", "refused"):
        assert finding.field == "n" and "launched as i32 equal to 1" in finding.message


def test_a_compile_and_its_load_in_a_capture_are_one_finding():
    late = [event("compile", C, 5.0, "capture"), event("load", C, 1.0, "capture")]
    [finding] = judge(late, PLAN)
    assert finding.message.startswith("K was compiled and loaded while a graph was captured (6.0 m")


def test_a_load_in_a_capture_is_not_told_twice():
    assert kinds(judge([warm("compile"), event("load", phase="capture")])) == ["CAPTURE-UNSAFE"]


def test_one_key_compiled_by_every_rank():
    events = [warm("compile", A, 1000.0 + rank, rank) for rank in range(8)]
    events += [warm("compile", B, 500.0, 3)]
    [finding] = judge(events, PLAN)
    assert (finding.kind, finding.seen) == ("DUP", A)
    assert finding.message == (
        "K: one key was compiled 8 times by ranks 0-7; 7.02 s of it are redundant"
    )
    assert redundant_seconds(events) == pytest.approx(7.021)
    assert judge([warm("compile", A), warm("disk_hit", A, rank=1)], PLAN) == ()


def test_one_process_that_compiles_one_key_twice():
    [finding] = judge([warm("compile", A), warm("compile", A)], PLAN)
    assert "compiled 2 times by one process" in finding.message
    assert finding.advice == "compile it once and keep what the compiler returned"


def test_warming_behind_a_switch_that_is_off():
    events = [warm("compile", A), warm("compile", B), warm("load", A), event("load", C, 1.0)]
    gate, load = judge(events, PLAN, enabled=False)
    assert (gate.kind, gate.kernel) == ("GATE-IGNORED", "K")
    assert gate.message == (
        "K: 2 compiles, 1 load at start-up although warm-up is switched off (30.0 ms)"
    )
    assert load.kind == "NOT-EXECUTED"
    assert judge([event("compile", A)], enabled=False) == judge([event("compile", A)])


def test_a_warm_up_that_failed():
    [finding] = judge([warm("failed", A), warm("failed", A)], PLAN)
    assert (finding.kind, finding.kernel, finding.seen) == ("WARM-CRASH", "K", A)


def test_a_kernel_that_traces_at_each_launch():
    [finding] = judge([event("trace"), event("trace")], PLAN)
    assert (finding.kind, finding.kernel) == ("MISS", "K")
    assert "traced again" in finding.message


def test_events_and_findings_are_values():
    events = [event("compile", C, values={"n": 1}, configs=2, in_tuning=True, place="a.py:1")]
    again = msgspec.json.decode(msgspec.json.encode(events), type=list[Event])
    assert again == events
    assert judge(again, PLAN) == judge(events, PLAN) == judge(events, Planned(PLAN))


def test_before_a_capture():
    events = [warm("compile", A), warm("compile", B), warm("load", B)]
    [finding] = before_capture(events, plan=PLAN)
    assert (finding.kind, finding.kernel, finding.seen) == ("CAPTURE-UNSAFE", "K", A)
    assert finding.message == "K is compiled and not loaded: a capture would load it"
    assert before_capture(events, [B]) == ()
    [finding] = before_capture(events, [B, C])
    assert finding.message == "m.k is not compiled: a capture would compile it"
    assert before_capture([*events, event("load", A)]) == ()


def test_a_slow_step_without_an_event_is_no_compile():
    [finding] = blame([10.0, 11.0, 100.0, 10.0], [])
    assert (finding.kind, finding.smallest) == ("NOT-JIT", "step 2")
    assert finding.message == (
        "step 2 took 100.0 ms against 10.0 ms as a rule, and nothing was compiled, loaded or tuned "
        "in it"
    )


def test_what_surrounds_a_compile_is_not_blamed_on_something_else():
    # Measured: a first compile, which has Triton import 52 modules before it.
    steps = [413.0, 0.1, 0.1, 0.1]
    assert blame(steps, [event("compile", ms=361.0, step=0)], least_ms=10.0) == ()
    # A compile of 100 ms and more that nobody saw, alone or beside one that is a sixth of the step.
    assert len(blame([113.0, 0.1, 0.1], [])) == 1
    assert len(blame([120.0, 0.1, 0.1], [event("compile", ms=20.0, step=0)])) == 1
    # Only compiles are excused: what a load or a tuning leaves out is not.
    assert len(blame(steps, [event("load", ms=361.0, step=0)])) == 1
    assert len(blame(steps, [event("tune", ms=361.0, step=0)])) == 1
    assert len(blame(steps, [event("compile", ms=361.0, step=1)])) == 1


def test_a_slow_step_that_waited_for_a_compile_is_not_blamed_on_something_else():
    steps = {4: 10.0, 5: 100.0, 6: 10.0}
    assert blame(steps, [event("compile", ms=85.0, step=5)]) == ()
    assert blame(steps, [event("compile", ms=85.0, step=4)]) != ()
    [finding] = blame(steps, [event("load", ms=2.0, step=5)])
    assert "account for 2.0 ms of it only" in finding.message


def test_steps_are_compared_with_their_peers():
    steps = [10.0, 100.0, 10.0, 101.0, 10.0]
    assert [finding.smallest for finding in blame(steps, [])] == ["step 1", "step 3"]
    shapes = ["decode", "prefill", "decode", "prefill", "decode"]
    assert blame(steps, [], peers=shapes) == ()
    [finding] = blame([*steps, 400.0], [], peers=[*shapes, "prefill"])
    assert finding.smallest == "step 5"
    assert blame([*steps, 400.0], [], peers=[*shapes, "other"]) == ()  # nothing to compare with


def test_noise_is_no_finding():
    assert blame([0.1, 0.1, 0.9], []) == ()  # less than a millisecond
    assert blame([10.0, 10.0, 29.0], []) == ()
    assert len(blame([10.0, 10.0, 29.0], [], times=2.0)) == 1
    assert len(blame([0.1, 0.1, 0.9], [], least_ms=0.5)) == 1
    assert blame([], []) == blame([5.0], []) == ()
