"""One result of the answers of many processes, and the doubts that it states about itself."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jitwarm.assemble import _checks, assemble
from jitwarm.commands.run import _verdict
from jitwarm.harness import Measured
from jitwarm.history.consistent import check_consistent
from jitwarm.jobs import Answer, KeyOutcome, StepTimes, Warmed
from jitwarm.judge.coverage import Observed
from jitwarm.observe.events import Event
from jitwarm.plan import Funnel, KernelRow, PlanKey
from jitwarm.record import DeviceRecord, FailedKey
from jitwarm.scenario import Case, Scenario
from jitwarm.tally import GATE, OK, RUN

# A quick first prefill (step 0) and decode (step 1), as quick as later ones.
QUICK = StepTimes(1.0, 1.0, (1.0,) * 8, (1.0,) * 8, 0, 1.0)


def answer(*events, times=QUICK):
    device = DeviceRecord("cuda", "sm90", "NVIDIA H200", "580.1")
    observed = Observed(0, 1, {}, list(events))
    return Answer("disk", device, {}, {}, 1.0, 1, emits_token=False, checks=(), times=times,
                  observed=observed)  # fmt: skip


def event(kind, phase, kernel, ms=1.0, step=-1):
    return Event(kind, kernel, f"{kernel}[x]", "id", ms, {}, phase, step)


def doubts(*events):
    measured = Measured({"loaded": [answer()], "disk": [answer(*events)] * 2}, [], None, [])
    return [text for text in _checks(measured, {"x": FakeArm()}) if text.startswith("arm disk")]


class FakeArm:
    samples, spread = 3, None


def test_a_second_start_that_compiles_again_says_so():
    assert doubts(
        event("compile", "warm", "lib.cute._fwd"),
        event("compile", "warm", "lib.cute._fwd"),
        event("compile", "warm", "mine.TopK"),
        event("disk_hit", "warm", "mine._triton"),
        event("compile", "serve", "mine._late"),
    ) == [
        (
            "arm disk: 3 keys compiled again at the second start, because the compiler left "
            "nothing on disk: TopK, _fwd"
        )
    ]


def test_a_second_start_from_disk_says_nothing():
    assert doubts(event("disk_hit", "warm", "mine._triton"), event("load", "warm", "m._t")) == []


def stalls(*answers):
    """What is said about first steps of arm `loaded`."""
    measured = Measured({"loaded": list(answers)}, [], None, [])
    said = [text for text in _checks(measured, {"x": FakeArm()}) if "first " in text]
    rest = ": look for a compiler that is not watched (docs/monitor.md), or what else it waited for"
    return [text.removesuffix(rest) for text in said]


def stalled(prefill=1.0, decode=1.0, lead=0, later=1.0, imports=(0, 0)):
    return StepTimes(prefill, decode, (later,) * 8, (later,) * 8, lead, 1.0, imports)


def test_a_stall_that_no_event_explains_is_said():
    assert stalls(answer(times=stalled(prefill=75.0))) == [
        "arm loaded: first prefill step took 75 ms, 1.0 ms later, and events explain 0 ms of it"
    ]
    assert stalls(answer(times=stalled(decode=75.0))) == [
        "arm loaded: first decode step took 75 ms, 1.0 ms later, and events explain 0 ms of it"
    ]
    # Traffic without a prefill: the first decode is step 0.
    alone = stalled(prefill=None, decode=75.0, lead=-1)
    assert len(stalls(answer(times=alone))) == 1
    assert stalls(answer(event("compile", "serve", "k", 70.0, step=0), times=alone)) == []


def test_a_stall_is_held_against_the_events_of_its_own_step():
    slow = stalled(prefill=75.0)
    assert stalls(answer(event("compile", "serve", "k", 70.0, step=0), times=slow)) == []
    assert len(stalls(answer(event("compile", "serve", "k", 70.0, step=1), times=slow))) == 1
    assert len(stalls(answer(event("compile", "warm", "k", 70.0), times=slow))) == 1
    assert stalls(answer(event("load", "serve", "k", 20.0, step=0), times=slow)) == [
        "arm loaded: first prefill step took 75 ms, 1.0 ms later, and events explain 20 ms of it"
    ]


@pytest.mark.parametrize(("took", "compiled"), [(413, 361), (549, 503), (584, 534), (1161, 1043)])
def test_the_first_compile_of_a_process_hides_no_other_compiler(took, compiled):
    """Measured: what is left are Triton's own imports before it."""
    times = stalled(prefill=float(took), later=0.1, imports=(52, 0))
    late = event("compile", "serve", "k", float(compiled), step=0)
    assert stalls(answer(late, times=times)) == []
    for other in (event("load", "serve", "k", float(compiled), step=0),
                  event("compile", "serve", "k", compiled / 2, step=0),
                  event("compile", "warm", "k", float(compiled))):  # fmt: skip
        assert len(stalls(answer(other, times=times))) == 1


def test_a_stall_says_what_was_imported_in_it():
    late = event("compile", "serve", "k", 110.0, step=1)
    (text,) = stalls(answer(late, times=stalled(decode=2460.0, imports=(3, 866))))
    assert text == (
        "arm loaded: first decode step took 2460 ms, 1.0 ms later, and events explain 110 ms of "
        "it: import at start-up what it imported (866 modules), or look for a compiler that is not "
        "watched (docs/monitor.md), or what else it waited for"
    )


def test_what_is_no_stall_is_passed_over():
    assert stalls(answer()) == []
    assert stalls(answer(times=stalled(prefill=10.9))) == []  # what a busy host does
    assert stalls(answer(times=stalled(prefill=140.0, later=50.0))) == []
    assert stalls(answer(times=stalled(None, None, -1))) == []
    quick = answer()
    assert stalls(quick, answer(times=stalled(prefill=75.0)), quick) == []  # one in three


KEY, LATE = "m.k[n:i32/D]{cuda:90}", "m.k[n:i32/]{cuda:90}"
WARMED = Warmed(
    layers=1,
    funnel=Funnel(1, 1, 1.0, 1, 1, 1),
    rows=(KernelRow("K", "triton", 1, 1, 1, 1, 1),),
    keys=(PlanKey("K", "triton", "K(16)", KEY),),
    enumeration_s=0.0,
    seconds=0.1,
    cpu_seconds=0.1,
    threads=1,
    depth="loaded",
    outcomes=(KeyOutcome(KEY, "K", "warmed", 0.1),),
    failed=(),
    findings=(),
)


def process(arm, number=1, *events, failed=()):
    """A process that launches what it has warmed, and what its events say."""
    launches = dict.fromkeys([KEY, *(one.key for one in events)], 3)
    observed = Observed(0, 50, launches, list(events))
    warmed = None if arm == "cold" else msgspec.structs.replace(WARMED, failed=tuple(failed))
    return msgspec.structs.replace(
        answer(), arm=arm, process=number, warmed=warmed, observed=observed
    )


def result_of(**arms):
    case = Case(schema=1, name="s", model="m:x")
    scenario = Scenario(path="s.toml", name="s", sha256="", cases=(case,), quick=())
    measured = Measured(dict(arms), [], None, [])
    result = assemble(scenario, case, measured, "2026-11-30T08:00:00+00:00")
    check_consistent(Path("result.json"), result)
    return result


@pytest.mark.parametrize("kind", ["compile", "disk_hit", "refused", "tune", "trace"])
@pytest.mark.parametrize(
    ("arm", "number"), [("loaded", 2), ("disk", 1), ("disk", 2), ("compiled", 1)]
)
def test_a_late_compile_in_any_process_that_warmed_up_is_a_miss(arm, number, kind):
    late = msgspec.structs.replace(event(kind, "serve", "m.k", 40.0, step=7), key=LATE)
    own = {"loaded": [process("loaded")], "cold": [process("cold", 1, late)]}
    own.setdefault(arm, [process(arm)] if number == 2 else []).append(process(arm, number, late))
    result = result_of(**own)
    assert _verdict(result) == GATE
    coverage = result.coverage
    assert (coverage.needed, coverage.hit, coverage.missed, result.missed) == (2, 1, 1, 1)
    (miss,) = coverage.misses
    where = f"process {number} of arm {arm}"
    assert (miss.key, miss.process, miss.first_step, miss.count) == (LATE, where, 7, 3)
    (kernel,) = result.kernels
    assert (kernel.needed, kernel.missed, kernel.unreached) == (2, 1, 0)
    compiled = int(kind == "compile")  # of the process with most, wherever it stands
    assert (result.arms[arm].compiles, result.arms[arm].disk_hits) == (compiled, kind == "disk_hit")


def test_what_may_happen_while_serving_is_no_miss():
    late = msgspec.structs.replace(event("compile", "serve", "m.k"), key=LATE)
    load = msgspec.structs.replace(event("load", "serve", "m.k"), key=KEY)
    warm = msgspec.structs.replace(event("compile", "warm", "m.k"), key=KEY)
    result = result_of(
        cold=[process("cold", 1, late)],
        loaded=[process("loaded", 1, warm), process("loaded", 2, warm)],
        disk=[process("disk", 1, warm)],
        compiled=[process("compiled", 1, load)],
    )
    assert (_verdict(result), result.coverage.needed, result.missed) == (OK, 1, 0)
    assert result.arms["cold"].compiles == 1


def test_a_key_that_the_first_process_missed_is_missed_once():
    late = msgspec.structs.replace(event("compile", "serve", "m.k", step=3), key=LATE)
    read = msgspec.structs.replace(event("disk_hit", "serve", "m.k", step=3), key=LATE)
    result = result_of(
        loaded=[process("loaded", 1, late), process("loaded", 2, late)],
        disk=[process("disk", 1, read), process("disk", 2, read)],
    )
    assert (result.missed, [miss.process for miss in result.coverage.misses]) == (1, [""])


def test_a_key_that_failed_to_warm_in_any_process_is_told_once():
    first = FailedKey("K", KEY, "OutOfMemory: at 0x1")
    again = FailedKey("K", KEY, "OutOfMemory: at 0x2")
    other = FailedKey("K", "", "ValueError: no")
    result = result_of(
        loaded=[process("loaded", 1, failed=[first]), process("loaded", 2, failed=[again])],
        disk=[process("disk", 1, failed=[again, other])],
    )
    told = FailedKey("K", "", "ValueError: no (in process 1 of arm disk)")
    assert (result.warm.failed, _verdict(result)) == ((first, told), RUN)
