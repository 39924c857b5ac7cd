"""Coverage: plan against launches and events, in backend keys."""

from __future__ import annotations

import msgspec

from jitwarm.judge.coverage import Observed, cover, digest, missed_by_kernel
from jitwarm.keys import key_id
from jitwarm.observe.events import Event
from jitwarm.plan import PlanKey

A, B, C = (f"m.k[n:i32/{cls}]{{cuda:90}}" for cls in ("", "D", "1"))
OTHER = "m.other[n:i32]{cuda:90}"
PLAN = [
    PlanKey("K", "triton", "K(17)", A),
    PlanKey("K", "triton", "K(33)", A),
    PlanKey("K", "triton", "K(16)", B),
]


def event(kind, key, step=0, phase="serve", ms=1.0):
    return Event(kind, key.partition("[")[0], key, key_id(key), ms, {}, phase, step)


def observed(launches, *events):
    return Observed(rank=2, steps=9, launches=launches, events=list(events))


def test_everything_warm():
    coverage = cover(PLAN, [A, B], observed({A: 3, B: 1}))
    assert (coverage.rank, coverage.steps, coverage.launches) == (2, 9, 4)
    assert (coverage.needed, coverage.warmed, coverage.hit, coverage.missed) == (2, 2, 2, 0)
    assert (coverage.unreached, coverage.unreached_declared) == (0, 0)
    assert (coverage.misses, coverage.unreached_keys) == ((), ())


def test_keys_that_no_launch_asked_for():
    coverage = cover(PLAN, [A, B], observed({B: 1}))
    assert (coverage.needed, coverage.hit, coverage.unreached) == (1, 1, 1)
    assert coverage.unreached_keys == (A,)
    assert coverage.unreached_declared == 2  # both declared keys of it


def test_a_miss_is_counted_once_with_its_launches_first_step_and_time():
    events = [event("compile", C, 4, ms=50.0), event("load", C, 4, ms=9.0)]
    coverage = cover(PLAN, [A, B], observed({A: 3, B: 1, C: 7}, *events))
    assert (coverage.needed, coverage.hit, coverage.missed, coverage.unreached) == (3, 2, 1, 0)
    (miss,) = coverage.misses
    assert (miss.kernel, miss.key, miss.first_step, miss.count) == ("K", C, 4, 7)
    assert (miss.ms, miss.rank, miss.finding.kind, miss.finding.field) == (50.0, 2, "MISS", "n")
    assert missed_by_kernel(coverage) == {"K": 1}


def test_what_another_process_missed_is_missed_once():
    compiled = event("compile", C, 4, ms=50.0)
    (own,) = cover(PLAN, [A, B], observed({C: 7}, compiled)).misses
    late = event("disk_hit", B, 2, ms=3.0)
    other = cover(PLAN, [A, B], observed({B: 1, C: 2}, late, compiled))
    elsewhere = [msgspec.structs.replace(miss, process="process 2") for miss in other.misses]
    # Not asked for here, or used here: missed in both cases, and no longer unreached.
    for launches, counts in (({A: 3, C: 7}, (3, 1, 2, 0)), ({B: 1, C: 7}, (2, 0, 2, 1))):
        coverage = cover(PLAN, [A, B], observed(launches, compiled), [*elsewhere, *elsewhere])
        assert coverage.launches == sum(launches.values())
        assert counts == (coverage.needed, coverage.hit, coverage.missed, coverage.unreached)
        assert coverage.unreached_declared == 2 * coverage.unreached
        found = {miss.key: miss for miss in coverage.misses}
        assert list(found) == [C, B]
        assert found[C] == own  # told of this process, where it was missed too
        assert (found[B].process, found[B].first_step, found[B].ms) == ("process 2", 2, 3.0)


def test_a_miss_of_a_key_replay_has_no_event():
    (miss,) = cover(PLAN, [A, B], observed({C: 7})).misses
    assert (miss.first_step, miss.count, miss.ms) == (-1, 7, 0.0)


def test_a_refused_launch_is_needed_and_missed_though_nothing_ran():
    events = [event("refused", C, step) for step in (5, 3)]
    coverage = cover(PLAN, [A, B], observed({}, *events))
    assert (coverage.launches, coverage.needed, coverage.missed) == (0, 1, 1)
    assert (coverage.misses[0].first_step, coverage.misses[0].count) == (3, 2)


def test_a_warmed_key_that_had_to_be_fetched_is_a_miss_of_its_own_kind():
    coverage = cover(PLAN, [A, B], observed({A: 1, B: 1}, event("disk_hit", A, 2)))
    assert (coverage.hit, coverage.missed, coverage.unreached) == (1, 1, 0)
    assert coverage.misses[0].finding.kind == "DISK-HIT"


def test_a_compile_inside_a_graph_capture_is_a_miss_too():
    coverage = cover(PLAN, [A, B], observed({A: 1}, event("compile", C, phase="capture")))
    assert [miss.key for miss in coverage.misses] == [C]


def test_events_of_warm_up_and_loads_are_no_misses():
    events = [event("compile", C, -1, "warm"), event("load", A)]
    assert cover(PLAN, [A, B], observed({A: 1, B: 1}, *events)).missed == 0


def test_what_a_warm_up_makes_after_start_up_is_missed():
    late = msgspec.structs.replace(event("compile", C, 4, "warm", 50.0), serving=True)
    for launches, count in (({A: 3, B: 1, C: 7}, 7), ({A: 3, B: 1}, 0)):
        coverage = cover(PLAN, [A, B], observed(launches, late))
        assert (coverage.needed, coverage.missed, coverage.unreached) == (3, 1, 0)
        (miss,) = coverage.misses
        assert (miss.key, miss.first_step, miss.count, miss.ms) == (C, 4, count, 50.0)
        assert (miss.finding.kind, miss.finding.message) == (
            "MISS",
            "K: a warm-up came to this key after start-up was over",
        )


def test_a_key_whose_warm_up_failed_is_missed_and_not_unreached():
    coverage = cover(PLAN, [A], observed({B: 1}, event("compile", B)))
    assert (coverage.warmed, coverage.missed) == (1, 1)
    assert coverage.unreached_keys == (A,)
    assert coverage.unreached_declared == 2


def test_without_warm_up_everything_needed_is_missed():
    coverage = cover(
        PLAN, [], observed({A: 2, OTHER: 1}, event("compile", A), event("compile", OTHER))
    )
    assert (coverage.warmed, coverage.hit, coverage.missed) == (0, 0, 2)
    assert [(miss.kernel, miss.finding.kind) for miss in coverage.misses] == [
        ("K", "MISS"),
        ("m.other", "UNDECLARED"),
    ]
    assert coverage.misses[0].finding.message == "K: declared, but this key was not made ready"
    assert coverage.misses[0].finding.advice == ("see why its warm-up failed, or was switched off")
    assert missed_by_kernel(coverage) == {"K": 1, "m.other": 1}


def test_a_digest_is_of_a_set():
    assert digest([A, B, A]) == digest([B, A]) == key_id("\n".join(sorted([A, B])))
    assert digest([A]) != digest([B])


def test_a_planned_key_that_compiled_and_did_not_load_is_missed():
    made = event("compile", A, phase="warm")
    coverage = cover(PLAN, [B], observed({A: 2, B: 1}, made))
    assert (coverage.needed, coverage.hit, coverage.missed) == (2, 1, 1)


def test_what_triton_made_for_an_opaque_kernel_is_ready():
    plan = [PlanKey("Own", "opaque", "Own(1)", "m.Own[1]")]
    made = event("compile", A, phase="warm")
    coverage = cover(plan, ["m.Own[1]"], observed({A: 2, B: 1}, made, event("compile", B)))
    assert (coverage.needed, coverage.hit, coverage.missed, coverage.unreached) == (2, 1, 1, 0)
    assert coverage.misses[0].finding.kind == "MISS"


CUTE = [
    PlanKey("C", "cutedsl", f"C({n})", f"m.C[n={n}]{{sm_90a; --enable-tvm-ffi}}") for n in (1, 2)
]


def test_keys_of_every_backend_but_opaque_ones_count():
    one, two = (key.backend_key for key in CUTE)
    coverage = cover([*PLAN, *CUTE], [A, one, two], observed({A: 1, two: 2}))
    assert (coverage.needed, coverage.warmed, coverage.hit) == (2, 3, 2)
    assert coverage.unreached_keys == (one,)
    three = one.replace("n=1", "n=3")
    (miss,) = cover([*PLAN, *CUTE], [A, one, two], observed({three: 2})).misses
    assert (miss.kernel, miss.finding.kind, miss.finding.field) == ("C", "MISS", "n")


def test_a_late_tuning_is_explained_by_the_choices_that_were_made_at_start_up():
    def choice(n):
        return f"m.k[n:{n}; x:float32]{{tune}}"

    choices = [
        PlanKey("K", "opaque", f"K({n}) choice for {choice(n)} (tuned)", f"m.K[{n}]")
        for n in (1, 8, 16)
    ]
    ready = [A, B, "m.K[1]", "m.K[8]"]  # the choice for 16 failed
    seen = observed({A: 3, B: 1}, event("tune", choice(64), 3))
    (miss,) = cover([*PLAN, *choices], ready, seen).misses
    assert (miss.kernel, miss.finding.field, miss.finding.warmed) == ("K", "n", "1, 8")
    assert miss.finding.advice == "declare a case with `n=64`"


def test_a_tuning_and_a_trace_while_serving_are_stalls_of_their_own():
    events = [event("tune", A, 3, ms=9.0), event("trace", B, 4), event("tune", C, 0, "warm")]
    coverage = cover(PLAN, [A, B], observed({A: 3, B: 1}, *events))
    assert (coverage.needed, coverage.missed) == (2, 2)
    assert {miss.key: (miss.finding.message, miss.ms) for miss in coverage.misses} == {
        A: ("K timed its configurations against each other while serving", 9.0),
        B: ("K was traced again while serving, to find that its binary is in memory", 1.0),
    }


def test_a_miss_says_where_it_came_from_and_who_registered_the_kernel():
    plan = [PlanKey("K", "triton", "K(16)", B, "layers.0", 61, {"n": 16})]
    late = Event(
        "compile", "m.k", A, key_id(A), 5.0, {}, "serve", 3, place="s.py:7", values={"n": 17}
    )
    (miss,) = cover(plan, [B], observed({A: 1, B: 1}, late)).misses
    assert (miss.finding.site, miss.finding.owners) == ("s.py:7", ("layers.0", "60 more"))
    assert miss.finding.message == (
        "K: `n`: warmed as i32 divisible by 16 (16), launched as i32 not divisible by 16 (17)"
    )


def test_a_warmed_key_that_was_compiled_again_is_no_disk_hit():
    (miss,) = cover(PLAN, [A, B], observed({A: 1}, event("compile", A))).misses
    assert miss.finding.kind == "MISS"
    assert miss.finding.message == "K was warmed with this key, and yet it was compiled again"


def test_a_late_tuning_is_a_finding_of_its_own_kind():
    tuned = Event("tune", "m.k", "m.k[n:3]{tune}", "", 9.0, {}, "serve", 3, configs=4)
    (miss,) = cover(PLAN, [A, B], observed({}, tuned)).misses
    assert (miss.finding.kind, miss.kernel) == ("AUTOTUNE", "K")
    assert miss.finding.message == (
        "K timed 4 configurations against each other while serving, for 9.0 ms"
    )


OWN = [PlanKey("Own", "opaque", f"Own({n})", f"m.Own[n={n}]") for n in (1, 2, 4)]
ONE, TWO, FOUR = (key.backend_key for key in OWN)
EIGHT = "m.Own[n=8]"


def test_a_kernel_that_owns_its_compile_and_whose_launches_are_counted():
    seen = observed({A: 1, ONE: 5, EIGHT: 2}, event("compile", EIGHT, 3))
    coverage = cover([*PLAN, *OWN], [A, ONE, TWO], seen)
    assert (coverage.needed, coverage.warmed, coverage.hit) == (3, 3, 2)
    assert coverage.unreached_keys == (TWO,)
    (miss,) = coverage.misses
    assert (miss.kernel, miss.key, miss.first_step, miss.count) == ("Own", EIGHT, 3, 2)
    assert (miss.finding.kind, miss.finding.field) == ("MISS", "n")
    assert miss.finding.message == "Own: `n`: warmed as 1 or 2, launched as 8"


def test_one_that_launches_past_the_count_has_no_unreached_keys():
    seen = observed({A: 1, EIGHT: 1}, event("compile", EIGHT))
    coverage = cover([*PLAN, *OWN], [A, ONE, TWO], seen)
    assert (coverage.warmed, coverage.unreached_keys) == (1, ())
    (miss,) = coverage.misses
    assert (miss.kernel, miss.finding.kind, miss.finding.field) == ("Own", "MISS", "n")


def test_a_refused_tuning_is_explained_by_its_choices():
    def choice(n):
        return f"m.k[n:{n}]{{tune}}"

    chosen = PlanKey("K", "opaque", f"K(256) choice for {choice(256)} (tuned)", "m.K[256]")
    seen = observed(
        {A: 1, B: 1}, event("refused", choice(512), 1), event("refused", choice(512), 3)
    )
    (miss,) = cover([*PLAN, chosen], [A, B, "m.K[256]"], seen).misses
    assert (miss.kernel, miss.first_step, miss.count, miss.finding.kind) == ("K", 1, 2, "AUTOTUNE")
    assert miss.finding.message == (
        "K was about to time its configurations against each other while serving: `n`: warmed as "
        "256, launched as 512"
    )
