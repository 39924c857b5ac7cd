"""Judge what needs no process: events of all ranks, step times, and a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jitwarm.faults.examine import Examined, is_enabled
from jitwarm.faults.form import Fault
from jitwarm.findings import Finding
from jitwarm.judge.events import judge
from jitwarm.judge.slow_steps import blame
from jitwarm.judge.stores import check_store
from jitwarm.plan import PlanKey
from jitwarm.proof.descriptors import with_descriptors

# Fewer processes than this rarely meet each other in a store.
_LEAST = 4
# Steps that are measured here are on a busy machine: smaller differences mean nothing.
_LEAST_MS = 20.0


def judged(fault: Fault, processes: Sequence[Examined], folder: Path) -> list[Finding]:
    """All findings of a fault whose processes have ended: theirs, those of their events and of the
    events that the fault gives, of its step times, and of its store, in an empty folder below
    `folder`. Each finding once.
    """
    found = [finding for one in processes for finding in one.findings]
    crashed = {finding.kernel for finding in found if finding.kind == "WARM-CRASH"}
    events = [event for one in processes for event in one.events] + list(fault.events)
    ready = {key for one in processes for key in one.ready}
    ready |= {e.key for e in fault.events if not e.late and e.kind in ("compile", "disk_hit")}
    said = "; ".join(dict.fromkeys(one.descriptors for one in processes if one.descriptors))
    plan = {(key.declared, key.backend_key): key for one in processes for key in one.plan}
    chosen = [
        # What a hand-written warm-up tuned is chosen, as if it had been planned.
        PlanKey("", "opaque", f"{event.kernel} choice for {event.key} (tuned)", "")
        for event in events
        if event.kind == "tune" and not event.late
    ]
    late = judge(events, [*plan.values(), *chosen], ready=ready, enabled=is_enabled(fault))
    found += [
        one
        for one in with_descriptors(late, said)
        if one.kind != "WARM-CRASH" or one.kernel not in crashed
    ]
    for one in processes:
        found += blame(one.step_ms, one.events, least_ms=_LEAST_MS)
    if not isinstance(fault.step_ms, str):
        found += blame(fault.step_ms, events)
    if fault.store is not None:
        place = folder / "store"
        place.mkdir()
        found += check_store(fault.store, place, processes=max(fault.processes, _LEAST))
    return list(dict.fromkeys(found))
