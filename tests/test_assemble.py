"""The doubts that a result states about itself."""

from __future__ import annotations

from jitwarm.assemble import _checks
from jitwarm.harness import Measured
from jitwarm.jobs import Answer, StepTimes
from jitwarm.judge.coverage import Observed
from jitwarm.observe.events import Event
from jitwarm.record import DeviceRecord

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
    return [text.partition(": look for")[0] for text in said]


def stalled(prefill=1.0, decode=1.0, lead=0, later=1.0):
    return StepTimes(prefill, decode, (later,) * 8, (later,) * 8, lead, 1.0)


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


def test_what_is_no_stall_is_passed_over():
    assert stalls(answer()) == []
    assert stalls(answer(times=stalled(prefill=10.9))) == []  # what a busy host does
    assert stalls(answer(times=stalled(prefill=140.0, later=50.0))) == []
    assert stalls(answer(times=stalled(None, None, -1))) == []
    quick = answer()
    assert stalls(quick, answer(times=stalled(prefill=75.0)), quick) == []  # one in three
