"""Replay the traffic of one rank by its keys: no kernel is compiled, and what its launches ask for
is held against the plan.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from jitwarm import threads
from jitwarm.backends.miss import Miss
from jitwarm.backends.triton.residents import Respelt
from jitwarm.findings import Finding
from jitwarm.jobs import RankReplay
from jitwarm.judge.planned import path_of
from jitwarm.model import Model
from jitwarm.observe.events import Event
from jitwarm.observe.monitor import Monitor
from jitwarm.observe.phases import current_phase
from jitwarm.plan import Plan
from jitwarm.proof.plan import ProofPlan
from jitwarm.record import MissRecord
from jitwarm.scenario import Case
from jitwarm.traffic import Batch, replay


@dataclass(frozen=True, slots=True)
class Asked:
    """What some steps asked for: launches by key, tunings in order, the keys of `launched` whose
    first launch was made inside of a kernel that owns its compile, and launches of planned keys
    that Triton does not find in memory.

    `warmed_late` are the keys that a warm-up in a step came to before any launch; those that are
    not planned are in `launched` too, if need be with 0 launches. `running` names the threads that
    still ran at the end.
    """

    launched: dict[str, int]
    tunings: tuple[Event, ...]
    inside: frozenset[str]
    respelt: tuple[Respelt, ...]
    warmed_late: dict[str, Event]
    running: tuple[str, ...]


def ask_steps(model: Model, batches: Sequence[Batch], rank: int, planned: ProofPlan) -> Asked:
    """Make these steps of null kernels, those of planned Triton launches in memory beforehand.

    No binary is compiled and no choice of an autotuner outlives it, so that what another rank asks
    for is seen as well.
    """
    with planned.residents.in_memory(), _KeyMonitor(rank, planned) as monitor:
        monitor.begin_serving()
        for index, batch in enumerate(batches):
            monitor.step = index
            model.step(batch)
        threads.settle(monitor.seen)
        running = threads.names(threads.running())
        launched = monitor.launches()
    late = dict.fromkeys(monitor.warmed_late.keys() - planned.ready.keys(), 0)
    return Asked(
        launched=late | launched,
        tunings=tuple(one for one in monitor.events if one.kind == "tune"),
        inside=frozenset(monitor.inside),
        respelt=tuple(monitor.respelt),
        warmed_late=monitor.warmed_late,
        running=running,
    )


def replay_keys(case: Case, rank: int, model: Model, plan: Plan, steps: int) -> RankReplay:
    """Replay `steps` steps of a case's traffic.

    What a kernel that owns its compile launches inside, of kernels that nobody planned, may be
    warmed with it: that shows in `jitwarm run` only, so it is not judged.
    """
    batches = replay(case, steps).batches
    planned = ProofPlan(plan)
    asked = ask_steps(model, batches, rank, planned)
    paths = {path_of(key) for key in planned.texts}
    missing = asked.launched.keys() - planned.ready.keys()
    untold = {key for key in missing & asked.inside if path_of(key) not in paths}
    misses = [
        MissRecord(planned.name(key), key, -1, count, 0.0, finding, rank)
        for key, count in asked.launched.items()
        if key in missing and key not in untold
        for finding in [planned.explain(key, event=asked.warmed_late.get(key))]
    ]
    misses += [
        MissRecord(planned.name(key), key, -1, asked.launched[key], 0.0, finding, rank)
        for key, finding in _respelt(planned, asked.respelt)
    ]
    misses += [
        MissRecord(one.kernel, key, first.step, count, 0.0, one, rank)
        for (key, count), first, one in _unchosen(planned, asked.tunings)
    ]
    return RankReplay(
        rank=rank,
        steps=len(batches),
        launches=sum(asked.launched.values()),
        needed=len(asked.launched),
        misses=tuple(misses),
        untold=tuple(sorted(untold)),
        kinds=dict(Counter(batch.kind for batch in batches)),
        running=asked.running,
    )


def _respelt(planned: ProofPlan, launches: Iterable[Respelt]) -> Iterable[tuple[str, Finding]]:
    """Each planned key that a launch does not find in memory, with the first reason."""
    found = {one.text: planned.explain_respelt(one) for one in reversed(tuple(launches))}
    yield from reversed(found.items())


def _unchosen(planned: ProofPlan, tunings: Iterable[Event]) -> Iterable[Any]:
    """Each choice that start-up does not make: (text, how often), its first event, why."""
    events = [one for one in tunings if one.key not in planned.choices]
    for text, count in Counter(one.key for one in events).items():
        first = next(one for one in events if one.key == text)
        yield (text, count), first, planned.explain_choice(text, first)


class _KeyMonitor(Monitor):
    """Serves null kernels, and notes what kernels that own their compile launch inside, and what
    is planned and not in memory all the same.
    """

    def __init__(self, rank: int, planned: ProofPlan) -> None:
        super().__init__("record", rank=rank, count_hits=True, null_kernels=True)
        self.owners = planned.owning_types()
        self.warmed = planned.residents.spellings
        self.inside: set[str] = set()
        self.respelt: dict[Respelt, None] = {}
        self.warmed_late: dict[str, Event] = {}

    def on_miss(self, miss: Miss) -> Any:
        in_warm_up = current_phase() == "warm"
        if in_warm_up and miss.kind != "tune":
            self.warmed_late.setdefault(miss.text, self._of_miss("compile", miss))
        if self.owners and _launched_inside(self.owners):
            self.inside.add(miss.text)
        elif miss.text in self.warmed and not in_warm_up:
            self.respelt[Respelt(miss.text, miss.spelling)] = None
        return super().on_miss(miss)


def _launched_inside(owners: tuple[type, ...]) -> bool:
    """Whether this thread is in a method of such an object, or in a function that one of its
    class's methods made, as executors are.
    """
    names = {
        (kind.__module__, kind.__qualname__)
        for owner in owners
        for kind in owner.__mro__
        if not kind.__module__.startswith(("jitwarm.contract.", "builtins", "typing", "abc"))
    }
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        made_by = code.co_qualname.partition(".<locals>")[0].rpartition(".")[0]
        if (frame.f_globals.get("__name__"), made_by) in names:
            return True
        if code.co_argcount and isinstance(frame.f_locals.get(code.co_varnames[0]), owners):
            return True
        frame = frame.f_back
    return False
