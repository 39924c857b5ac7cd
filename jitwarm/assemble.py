"""From the answers of the measuring processes to the one result of a case."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from jitwarm.amounts import counted
from jitwarm.harness import Measured
from jitwarm.jobs import DEPTH, Answer, Warmed
from jitwarm.judge.coverage import LATE, counted_keys, cover, digest, missed_by_kernel
from jitwarm.judge.slow_steps import is_slow
from jitwarm.plan import KernelRow
from jitwarm.record import (
    SCHEMA,
    ArmRecord,
    CoverageRecord,
    FailedKey,
    FunnelRecord,
    KernelRecord,
    MissRecord,
    RankPlan,
    Result,
    SourceRecord,
    WarmRecord,
)
from jitwarm.scenario import Case, Scenario

T = TypeVar("T")

# Below this many samples a spread says nothing (docs/measurements.md).
FEW_SAMPLES = 3
WIDE_SPREAD = 0.10
# A compile takes 20 ms or more; a busy host alone delays a step by some milliseconds.
STALL_MS = 10.0


NO_SOURCE = SourceRecord()


def assemble(
    scenario: Scenario,
    case: Case,
    measured: Measured,
    started_at: str,
    source: SourceRecord = NO_SOURCE,
) -> Result:
    """The result of a case, measured at `source`. Needs at least one answer of arm `loaded`."""
    loaded = measured.arms["loaded"][0]
    warmed = _given(loaded.warmed)
    coverage = _coverage(loaded, _missed_elsewhere(measured))
    arms = {arm: _arm(answers) for arm, answers in measured.arms.items() if answers}
    events = _given(loaded.observed).events
    kinds = Counter(event.kind for event in events if not event.late)
    return Result(
        schema=SCHEMA,
        scenario=case.name,
        case=msgspec.to_builtins(case),
        scenario_sha256=scenario.sha256,
        started_at=started_at,
        device=loaded.device,
        versions=loaded.versions,
        caches=loaded.caches,
        funnel=FunnelRecord(
            layers=warmed.layers,
            **msgspec.structs.asdict(warmed.funnel),
            compiled=kinds["compile"],
            disk_hits=kinds["disk_hit"],
            loaded=kinds["load"],
        ),
        kernels=tuple(_kernel(row, loaded, warmed, coverage) for row in warmed.rows),
        warm=WarmRecord(
            seconds=warmed.seconds,
            cpu_seconds=warmed.cpu_seconds,
            jobs=warmed.threads,
            depth=warmed.depth,
            warmed=len(warmed.ready),
            skipped=tuple(
                outcome.key for outcome in warmed.outcomes if outcome.status == "skipped"
            ),
            failed=_failed(measured),
            redundant_compiles=_redundant(loaded),
        ),
        coverage=coverage,
        rank_coverage=tuple(_coverage(answer) for answer in measured.ranks),
        rank_plans=measured.plan.plans if measured.plan else (_own_plan(warmed, coverage.rank),),
        arms=arms,
        launch_overhead_us=_given(loaded.times).launch_us,
        enumeration_s=warmed.enumeration_s,
        import_s=statistics.median(a.import_s for a in measured.arms["loaded"]),
        peak_rss_bytes=max(a.peak_rss_bytes for a in measured.arms["loaded"]),
        findings=warmed.findings,
        checks=tuple(_checks(measured, arms)),
        source=source,
        failures=tuple(measured.failures),
    )


def _others(measured: Measured) -> Iterable[tuple[str, Answer]]:
    """The processes of the timed rank that warm up, but for the one whose coverage is reported: the
    later ones of arm `loaded`, and all of the other arms that do. None of them may compile late.
    """
    for arm in DEPTH:
        for answer in measured.arms.get(arm, ()):
            if answer is not measured.arms["loaded"][0]:
                yield f"process {answer.process} of arm {arm}", answer


def _missed_elsewhere(measured: Measured) -> Iterable[MissRecord]:
    for process, answer in _others(measured):
        for miss in _coverage(answer).misses:
            yield msgspec.structs.replace(miss, process=process)


def _failed(measured: Measured) -> tuple[FailedKey, ...]:
    """What could not be warmed or planned at any rank; the same failure of a rank once."""
    answers = [measured.arms["loaded"][0], *measured.ranks]
    if measured.plan is not None:
        answers.append(measured.plan)
    found: dict[FailedKey, None] = {}
    for answer in answers:
        rank = answer.observed.rank if answer.observed is not None else None
        for one in _given(answer.warmed).failed:
            found[one if rank is None else msgspec.structs.replace(one, rank=rank)] = None
    for process, answer in _others(measured):
        told = {(one.kernel, one.key, one.rank) for one in found}  # in whatever words
        rank = _given(answer.observed).rank
        for one in _given(answer.warmed).failed:
            if (one.kernel, one.key, rank) not in told:
                error = f"{one.error} (in {process})"
                found[msgspec.structs.replace(one, error=error, rank=rank)] = None
    return tuple(found)


def _coverage(answer: Answer, elsewhere: Iterable[MissRecord] = ()) -> CoverageRecord:
    warmed = _given(answer.warmed)
    return cover(warmed.keys, warmed.ready, _given(answer.observed), elsewhere)


def _own_plan(warmed: Warmed, rank: int) -> RankPlan:
    backend_keys = {key.backend_key for key in warmed.keys}
    return RankPlan(rank, len(warmed.keys), len(backend_keys), digest(backend_keys))


def _kernel(
    row: KernelRow, loaded: Answer, warmed: Warmed, coverage: CoverageRecord
) -> KernelRecord:
    own = {key.backend_key for key in warmed.keys if key.kernel == row.kernel}
    outcomes = [outcome for outcome in warmed.outcomes if outcome.key in own]
    slowest = max(outcomes, key=lambda outcome: outcome.seconds, default=None)
    events = _given(loaded.observed).events
    missed = missed_by_kernel(coverage).get(row.kernel, 0)
    unreached = own.intersection(coverage.unreached_keys)
    ready = set(warmed.ready)
    keys = counted_keys(warmed.keys, ready, _given(loaded.observed).launches)
    ready &= own & {key.backend_key for key in keys}
    return KernelRecord(
        **msgspec.structs.asdict(row),
        compiled=sum(
            not event.late and event.kind == "compile" and event.key in own for event in events
        ),
        seconds=sum(outcome.seconds for outcome in outcomes),
        slowest_key=slowest.key if slowest else "",
        needed=len(ready)
        - len(unreached)
        + sum(m.kernel == row.kernel and m.key not in ready for m in coverage.misses),
        missed=missed,
        unreached=len(unreached),
    )


def _redundant(answer: Answer) -> int:
    compiled = Counter(
        event.key for event in _given(answer.observed).events if event.kind == "compile"
    )
    return sum(count - 1 for count in compiled.values())


def _arm(answers: Sequence[Answer]) -> ArmRecord:
    raw: dict[str, list[float]] = {
        "ready_s": [answer.ready_s for answer in answers],
        "first_prefill_ms": _known(_given(answer.times).first_prefill for answer in answers),
        "first_decode_ms": _known(_given(answer.times).first_decode for answer in answers),
        "later_ms": _known(_median(_given(answer.times).later_prefill) for answer in answers),
        "later_decode_ms": _known(_median(_given(answer.times).later_decode) for answer in answers),
    }
    raw["excess_ms"] = [
        a - b for a, b in zip(raw["first_prefill_ms"], raw["later_ms"], strict=False)
    ]
    raw["excess_decode_ms"] = [
        a - b for a, b in zip(raw["first_decode_ms"], raw["later_decode_ms"], strict=False)
    ]
    raw["load_ms"] = [_event_ms(answer, ("load",)) for answer in answers]
    raw["first_step_event_ms"] = [
        _event_ms(a, (*LATE, "load"), _given(a.times).first_prefill_step) for a in answers
    ]
    raw["first_step_load_ms"] = [
        _event_ms(a, ("load",), _given(a.times).first_prefill_step) for a in answers
    ]
    kinds: Counter[str] = Counter()
    for answer in answers:
        events = _given(answer.observed).events
        kinds |= Counter(event.kind for event in events if event.late)  # the larger one
    return ArmRecord(
        samples=len(answers),
        ready_s=statistics.median(raw["ready_s"]),
        first_prefill_ms=_median(raw["first_prefill_ms"]),
        first_decode_ms=_median(raw["first_decode_ms"]),
        later_ms=_median(raw["later_ms"]),
        later_decode_ms=_median(raw["later_decode_ms"]),
        excess_ms=_median(raw["excess_ms"]),
        excess_decode_ms=_median(raw["excess_decode_ms"]),
        load_ms=statistics.median(raw["load_ms"]),
        first_step_event_ms=statistics.median(raw["first_step_event_ms"]),
        first_step_load_ms=statistics.median(raw["first_step_load_ms"]),
        spread=_spread(raw["first_prefill_ms"] or raw["first_decode_ms"]),
        compiles=kinds["compile"],
        disk_hits=kinds["disk_hit"],
        loads=kinds["load"],
        is_first_token=answers[0].emits_token,
        raw=raw,
    )


def _event_ms(answer: Answer, kinds: tuple[str, ...], step: int | None = None) -> float:
    events = _given(answer.observed).events
    return sum(
        e.ms for e in events if e.late and e.kind in kinds and (step is None or e.step == step)
    )


def _checks(measured: Measured, arms: dict[str, ArmRecord]) -> Iterable[str]:
    answers = [answer for arm in measured.arms.values() for answer in arm]
    yield from dict.fromkeys(check for answer in answers for check in answer.checks)
    yield from _compiled_again(measured)
    yield from _stalls(measured.arms["loaded"])
    if answers[0].device.kind == "stub":
        yield "stub device: times are host times, nothing ran on a GPU"
    few = min(arm.samples for arm in arms.values())
    if few < FEW_SAMPLES:
        many = f"{counted(few, 'sample')} an arm"
        yield f"{many}: times carry no usable spread (--samples {FEW_SAMPLES} or more)"
    for name, arm in arms.items():
        if arm.spread is not None and arm.samples >= FEW_SAMPLES and arm.spread > WIDE_SPREAD:
            share = f"{arm.spread:.0%} of its median"
            yield f"arm {name}: first step spreads by {share} over {arm.samples} processes"


def _compiled_again(measured: Measured) -> Iterable[str]:
    """A second start is expected to compile nothing; some compilers keep nothing on disk."""
    for answer in measured.arms.get("disk", ())[:1]:
        events = _given(answer.observed).events
        kernels = [e.kernel for e in events if not e.late and e.kind == "compile"]
        if kernels:
            names = ", ".join(sorted({kernel.rpartition(".")[2] for kernel in kernels}))
            yield (
                f"arm disk: {counted(len(kernels), 'key')} compiled again at the second start, "
                f"because the compiler left nothing on disk: {names}"
            )


def _stalls(answers: Sequence[Answer]) -> Iterable[str]:
    """First steps behind the warm-up that waited for something which is no event."""
    found: dict[str, list[tuple[float, float, float, float, int]]] = {"prefill": [], "decode": []}
    for answer in answers:
        times, events = _given(answer.times), _given(answer.observed).events
        lead = times.first_prefill_step  # -1 without a prefill; the first decode comes next
        for what, step, first, later, imports in (
            ("prefill", lead, times.first_prefill, _median(times.later_prefill), times.imports[0]),
            ("decode", lead + 1, times.first_decode, _median(times.later_decode), times.imports[1]),
        ):
            if first is not None and later is not None:
                explained = sum(event.ms for event in events if event.step == step)
                compiled = _event_ms(answer, ("compile",), step)
                found[what].append((first, later, explained, compiled, imports))
    for what, steps in found.items():
        if steps:
            first, later, explained, compiled, imports = map(
                statistics.median, zip(*steps, strict=True)
            )
            if is_slow(first - explained, later, compiled_ms=compiled, least_ms=STALL_MS):
                advice = f"import at start-up what it imported ({imports:.0f} modules), or "
                yield (
                    f"arm loaded: first {what} step took {first:.0f} ms, {later:.1f} ms later, and "
                    f"events explain {explained:.0f} ms of it: {advice if imports else ''}look for "
                    "a compiler that is not watched (docs/monitor.md), or what else it waited for"
                )


def _spread(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    return (max(values) - min(values)) / statistics.median(values)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _given(value: T | None) -> T:
    """Arms always carry these parts; only plan jobs leave them out."""
    assert value is not None
    return value
