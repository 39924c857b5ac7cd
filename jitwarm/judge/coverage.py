"""Judge: plan x launches x events -> coverage, in backend keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from jitwarm import keys
from jitwarm.backends.triton.naming import natural_order
from jitwarm.backends.triton.unwrap import choices_in, is_tuning
from jitwarm.findings import Finding
from jitwarm.judge.events import traced_again
from jitwarm.judge.explain import explain_tuning
from jitwarm.judge.planned import Planned, path_of
from jitwarm.observe.events import Event
from jitwarm.plan import PlanKey
from jitwarm.record import CoverageRecord, MissRecord

LATE = ("compile", "disk_hit", "refused", "failed", "skipped")
# A tuning holds compiles of its own, so what adds up milliseconds leaves it out.
STALLS = (*LATE, "tune", "trace")
MADE = ("compile", "disk_hit")


class Observed(msgspec.Struct, frozen=True):
    """What one replay did: launches by canonical key, and its events."""

    rank: int
    steps: int
    launches: dict[str, int]
    events: list[Event]


def cover(
    plan: Iterable[PlanKey],
    ready: Iterable[str],
    observed: Observed,
    elsewhere: Iterable[MissRecord] = (),
) -> CoverageRecord:
    """Compare what traffic asked for with what was ready.

    `ready` are the backend keys that warm-up made ready (all of the plan's unless some failed or
    warm-up is off). A key is missed if a launch needed it and it was not ready, or if it had to be
    fetched while serving although it was (another spelling of the same options: a stall all the
    same); a key that was tuned, or traced again, while serving is missed, too. What was compiled
    during warm-up on behalf of a kernel that owns its compile is ready, and never counts as
    unreached; see `counted_keys` for the keys of such a kernel. What other processes of this rank
    missed, `elsewhere`, is missed here too, each key once.
    """
    plan, ready = list(plan), set(ready)
    planned = counted_keys(plan, ready, observed.launches)
    chosen = [text for key in plan if key.backend_key in ready for text in choices_in(key.declared)]
    known = Planned(plan)
    all_ready = known.texts.keys() & ready
    ready_keys = all_ready & {key.backend_key for key in planned}
    late = [event for event in observed.events if event.late and event.kind in STALLS]
    others = {miss.key: miss for miss in reversed(tuple(elsewhere))}
    needed = others.keys() | observed.launches.keys() | {event.key for event in late}
    made = {e.key for e in observed.events if not e.late and e.kind in MADE}
    # A planned key is ready if its warm-up says so: it may not have loaded.
    made -= known.texts.keys()
    own = (observed.launches.keys() - ready_keys - made) | {event.key for event in late}
    missed = own | others.keys()
    unreached = sorted(ready_keys - needed)
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
        misses=tuple(
            _miss(key, _finding(key, known, all_ready | made, late, chosen), observed, late)
            if key in own
            else others[key]
            for key in sorted(missed, key=natural_order)
        ),
        unreached_keys=tuple(unreached),
    )


def counted_keys(
    plan: Iterable[PlanKey], ready: Collection[str], launches: Collection[str]
) -> list[PlanKey]:
    """The keys of the plan whose launches are counted.

    All but those of backend `opaque`, whose kernels launch as they like. One of them that was seen
    to launch a key that was ready asks for its executors where launches are counted: then what it
    did not ask for was not used.
    """
    plan = list(plan)
    told = {path_of(key) for key in launches if key in ready}
    return [
        key
        for key in plan
        if key.backend != "opaque"
        or (path_of(key.backend_key) in told and not choices_in(key.declared))
    ]


def missed_by_kernel(coverage: CoverageRecord) -> Mapping[str, int]:
    """Missed keys by kernel name."""
    counts: dict[str, int] = {}
    for miss in coverage.misses:
        counts[miss.kernel] = counts.get(miss.kernel, 0) + 1
    return counts


def _finding(
    key: str,
    known: Planned,
    ready: Collection[str],
    late: Collection[Event],
    chosen: Collection[str],
) -> Finding:
    events = [event for event in late if event.key == key]
    first = events[0] if events else None
    kinds = {event.kind for event in events}
    if key not in known.texts or key in ready:
        if is_tuning(key) or kinds == {"tune"}:
            tuned = explain_tuning(
                known.name(key),
                key,
                chosen,
                configs=max(event.configs for event in events),
                ms=sum(event.ms for event in events),
                refused=kinds == {"refused"},
            )
            return known.placed(tuned, key, first)
        if kinds == {"trace"}:
            return known.placed(traced_again(known.name(key), key), key, first)
    return known.explain(key, ready=ready, event=_telling(events))


def _telling(events: list[Event]) -> Event | None:
    """The event that tells most about a miss: the compile, if there is one, else the first."""
    return next((event for event in events if event.kind == "compile"), next(iter(events), None))


def _miss(key: str, finding: Finding, observed: Observed, late: list[Event]) -> MissRecord:
    events = [event for event in late if event.key == key]
    return MissRecord(
        kernel=finding.kernel,
        key=key,
        first_step=min((event.step for event in events), default=-1),
        count=observed.launches.get(key, sum(event.phase != "warm" for event in events)),
        ms=sum(event.ms for event in events),
        finding=finding,
        rank=observed.rank,
    )


def digest(backend_keys: Iterable[str]) -> str:
    """One id for a set of backend keys."""
    return keys.key_id("\n".join(sorted(set(backend_keys))))
