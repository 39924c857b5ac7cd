"""The doubts that a result states about itself."""

from __future__ import annotations

from jitwarm.assemble import _checks
from jitwarm.harness import Measured
from jitwarm.jobs import Answer
from jitwarm.judge.coverage import Observed
from jitwarm.observe.events import Event
from jitwarm.record import DeviceRecord


def answer(*events):
    device = DeviceRecord("cuda", "sm90", "NVIDIA H200", "580.1")
    observed = Observed(0, 1, {}, list(events))
    return Answer("disk", device, {}, {}, 1.0, 1, emits_token=False, checks=(), observed=observed)


def event(kind, phase, kernel):
    return Event(kind, kernel, f"{kernel}[x]", "id", 1.0, {}, phase, -1)


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
            "arm disk: 3 keys were compiled again at the second start, because their compiler left "
            "nothing on disk: TopK, _fwd"
        )
    ]


def test_a_second_start_from_disk_says_nothing():
    assert doubts(event("disk_hit", "warm", "mine._triton"), event("load", "warm", "m._t")) == []
