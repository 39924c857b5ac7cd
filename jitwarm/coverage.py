"""Judge: plan x launches x events -> coverage, in backend keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from jitwarm import keys
from jitwarm.events import Event
from jitwarm.explain import explain_miss
from jitwarm.findings import Finding
from jitwarm.plan import PlanKey
from jitwarm.record import CoverageRecord, MissRecord

LATE = ("compile", "disk_hit", "refused", "failed", "skipped")


class Observed(msgspec.Struct, frozen=True):
    """What one replay did: launches by canonical key, and its events."""

    rank: int
    steps: int
    launches: dict[str, int]
    events: list[Event]


def cover(plan: Iterable[PlanKey], ready: Iterable[str], observed: Observed) -> CoverageRecord:
    """Compare what traffic asked for with what was ready.

    `ready` are the backend keys that warm-up made ready (all of the plan's unless some failed or
    warm-up is off). A key is missed if a launch needed it and it was not ready, or if it had to be
    fetched while serving although it was (another spelling of the same options: a stall all the
    same).
    """
    planned = list(plan)
    ready_keys = set(ready)
    late = [event for event in observed.events if event.phase != "warm" and event.kind in LATE]
    needed = set(observed.launches) | {event.key for event in late}
    missed = {key for key in needed if key not in ready_keys} | {event.key for event in late}
    unreached = sorted(ready_keys - needed)
    names = {key.backend_key: key.kernel for key in planned}
    return CoverageRecord(
        rank=observed.rank,
        steps=observed.steps,
        launches=sum(observed.launches.values()),
        needed=len(needed),
        warmed=len(ready_keys),
        hit=len(needed - missed),
        missed=len(missed),
        unreached=len(unreached),
        unreached_declared=sum(
            key.backend_key in ready_keys and key.backend_key not in needed for key in planned
        ),
        misses=tuple(_miss(key, names, ready_keys, observed, late) for key in sorted(missed)),
        unreached_keys=tuple(unreached),
    )


def missed_by_kernel(coverage: CoverageRecord) -> Mapping[str, int]:
    """Missed keys by kernel name."""
    counts: dict[str, int] = {}
    for miss in coverage.misses:
        counts[miss.kernel] = counts.get(miss.kernel, 0) + 1
    return counts


def _miss(
    key: str, names: Mapping[str, str], ready: set[str], observed: Observed, late: list[Event]
) -> MissRecord:
    events = [event for event in late if event.key == key]
    kernel_path = key.partition("[")[0]
    kernel = names.get(key) or next(
        (name for text, name in names.items() if text.partition("[")[0] == kernel_path), kernel_path
    )
    finding: Finding = explain_miss(kernel, key, ready)
    return MissRecord(
        kernel=kernel,
        key=key,
        first_step=min((event.step for event in events), default=-1),
        count=observed.launches.get(key, len(events)),
        ms=sum(event.ms for event in events),
        finding=finding,
        rank=observed.rank,
    )


def digest(backend_keys: Iterable[str]) -> str:
    """One id for a set of backend keys."""
    return keys.key_id("\n".join(sorted(set(backend_keys))))
