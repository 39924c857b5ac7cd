"""What events say, as findings. Pure: events of one process or of many in, findings out.

| event | finding |
|---|---|
| compile, refused, failed, skipped, trace while serving | MISS; UNDECLARED without any warmed key |
| disk_hit while serving | DISK-HIT |
| tune while serving (with the compiles inside of it), or its refusal | AUTOTUNE |
| load while serving of a key that was compiled at start-up | NOT-EXECUTED |
| any of them while a graph is captured | CAPTURE-UNSAFE |
| compile of one key more than once | DUP |
| anything made at start-up while warm-up is off | GATE-IGNORED |
| failed at start-up | WARM-CRASH |

At start-up is in the phase `warm`, before serving has begun; all else is while serving.

A load that follows a compile of its key is a part of that miss. Slow steps without an event are
judged by `slow_steps.blame`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from jitwarm.backends.triton.unwrap import is_tuning
from jitwarm.findings import Finding
from jitwarm.judge.explain import explain_tuning
from jitwarm.judge.planned import Plannable, Planned
from jitwarm.judge.slow_steps import blame
from jitwarm.observe.events import Event

__all__ = ["before_capture", "blame", "judge", "redundant_seconds", "traced_again"]

MISSED = ("compile", "refused", "failed", "skipped", "trace", "disk_hit")
MADE = ("compile", "disk_hit", "load", "tune")


def judge(
    events: Iterable[Event],
    plan: Plannable = None,
    *,
    ready: Collection[str] | None = None,
    enabled: bool = True,
) -> tuple[Finding, ...]:
    """The findings of these events, in order of the first event of each.

    One finding for each key (or kernel: GATE-IGNORED) and kind, whatever the number of ranks.
    `plan` is what was to be warmed, `ready` the keys that were made ready (all of the plan's
    without it); without a plan a miss is compared with what the events say was made at start-up.
    `enabled` is the switch of warm-up.
    """
    events = list(events)
    planned = Planned.of(plan)
    known = _ready(events, planned) if ready is None else ready
    return (
        *_crashes(events, planned),
        *(_gate_ignored(events, planned) if not enabled else ()),
        *_late(events, planned, known),
        *_duplicates(events, planned),
    )


def _ready(events: Iterable[Event], planned: Planned) -> Collection[str]:
    made = [e.key for e in events if not e.late and e.kind in ("compile", "disk_hit")]
    return dict.fromkeys([*planned.texts, *made])


def _by(events: Iterable[Event], key: Callable[[Event], str]) -> dict[str, list[Event]]:
    groups: dict[str, list[Event]] = {}
    for event in events:
        groups.setdefault(key(event), []).append(event)
    return groups


def _late(events: Iterable[Event], planned: Planned, ready: Collection[str]) -> Iterable[Finding]:
    late = [event for event in events if event.late]
    tuned = {(event.rank, event.kernel) for event in late if event.kind == "tune"}
    # What a tuning compiles is a part of it; if it was refused in there, nothing was tuned.
    inside = [e for e in late if e.in_tuning and (e.rank, e.kernel) in tuned]
    missed = {(event.rank, event.key) for event in late if event.kind in MISSED}
    held = {id(event) for event in inside}
    for key, own in _by((e for e in late if id(e) not in held), lambda event: event.key).items():
        # The load behind a compile tells nothing that the compile does not.
        loads = [e for e in own if e.kind == "load" and (e.rank, key) not in missed]
        misses = [e for e in own if e.kind in MISSED and not is_tuning(key)]
        tunes = [e for e in own if e.kind == "tune" or is_tuning(key)]
        captured = [e for e in own if e.phase == "capture"]
        if captured:
            yield _in_capture(captured, planned, ready)
            misses, tunes, loads = (
                [e for e in part if e.phase != "capture"] for part in (misses, tunes, loads)
            )
        if misses:
            yield _miss(misses, planned, ready)
        if tunes:
            yield _tuning(tunes, [e for e in inside if e.kernel == tunes[0].kernel], planned)
        if loads:
            yield _not_executed(loads, planned, ready)


def _miss(events: Sequence[Event], planned: Planned, ready: Collection[str]) -> Finding:
    """MISS, DISK-HIT or UNDECLARED, with the milliseconds and the ranks."""
    first = next((event for event in events if event.kind == "compile"), events[0])
    if {event.kind for event in events} == {"trace"}:
        return planned.placed(traced_again(planned.name(first.key), first.key), first.key, first)
    finding = planned.explain(first.key, ready=ready, event=first)
    took = "" if {e.kind for e in events} == {"refused"} else _took(events)
    took = f"{took}{_on_ranks(events)}".removeprefix(", ")
    took = f" ({took})" if took else ""
    if all(event.kind == "disk_hit" for event in events):
        why = finding.message
        if finding.kind == "UNDECLARED":
            why = "no key of it was warmed"
        elif finding.kind == "MISS":
            why = why.removeprefix(f"{finding.kernel}: ")
        message = f"{finding.kernel} was read from disk while serving{took}: {why}"
        return msgspec.structs.replace(finding, kind="DISK-HIT", message=message)
    return msgspec.structs.replace(finding, message=f"{finding.message}{took}")


def traced_again(kernel: str, key: str) -> Finding:
    """The finding of a CuTe DSL function that is traced at each launch."""
    return Finding(
        "MISS",
        kernel,
        f"{kernel} was traced again while serving, to find that its binary is in memory",
        seen=key,
        advice="launch what cute.compile returned, not the @cute.jit function",
    )


def _tuning(events: Sequence[Event], inside: Sequence[Event], planned: Planned) -> Finding:
    first = events[0]
    finding = explain_tuning(
        planned.name(first.key),
        first.key,
        planned.choices,
        configs=max(event.configs for event in events),
        ms=sum(event.ms for event in events),
        refused=all(event.kind == "refused" for event in events),
    )
    compiled = sum(event.kind == "compile" for event in inside)
    if compiled:
        finding = msgspec.structs.replace(
            finding, message=f"{finding.message}; {compiled} of them compiled meanwhile"
        )
    return planned.placed(finding, first.key, first)


def _not_executed(events: Sequence[Event], planned: Planned, ready: Collection[str]) -> Finding:
    first = events[0]
    kernel = planned.name(first.key)
    when = "at start-up" if first.key in ready else "where nobody watched"
    finding = Finding(
        "NOT-EXECUTED",
        kernel,
        f"{kernel} was compiled {when} and loaded by its first launch while serving "
        f"({_took(events)}{_on_ranks(events)})",
        seen=first.key,
        advice="warm up to depth `loaded`, or launch it once before traffic",
    )
    return planned.placed(finding, first.key, first)


_IN_CAPTURE = {"compile": "compiled", "disk_hit": "read from disk", "load": "loaded",
               "tune": "tuned", "trace": "traced", "refused": "about to be compiled",
               "failed": "compiled in vain", "skipped": "about to be compiled"}  # fmt: skip


def _in_capture(events: Sequence[Event], planned: Planned, ready: Collection[str]) -> Finding:
    """CAPTURE-UNSAFE; of a miss, with what differs from the nearest warmed key."""
    first = events[0]
    kernel = planned.name(first.key)
    refused = {"refused": "about to be tuned"} if is_tuning(first.key) else {}
    done = " and ".join(dict.fromkeys((_IN_CAPTURE | refused)[event.kind] for event in events))
    what = f"{kernel} was {done} while a graph was captured ({_took(events)}{_on_ranks(events)})"
    if first.kind in MISSED and first.kind != "trace" and not refused:
        why = planned.explain(first.key, ready=ready, event=first)
        return msgspec.structs.replace(
            why,
            kind="CAPTURE-UNSAFE",
            message=f"{what}: {why.message.removeprefix(f'{kernel}: ')}",
            advice=f"{why.advice}; warm it up to depth `loaded` before the capture",
        )
    advice = {
        "load": "warm up to depth `loaded`, or launch it once before the capture",
        "tune": "tune it before the capture",
    }.get(
        "tune" if refused else first.kind,
        "launch what cute.compile returned, not the @cute.jit function",
    )
    finding = Finding("CAPTURE-UNSAFE", kernel, what, seen=first.key, advice=advice)
    return planned.placed(finding, first.key, first)


def _crashes(events: Iterable[Event], planned: Planned) -> Iterable[Finding]:
    failed = (e for e in events if not e.late and e.kind == "failed")
    for key, own in _by(failed, lambda event: event.key).items():
        kernel = planned.name(key)
        finding = Finding(
            "WARM-CRASH",
            kernel,
            f"{kernel}: the warm-up of a key failed{_on_ranks(own)}",
            seen=key,
            advice="see the error that warm-up reported for it; its first launch will fail as well",
        )
        yield planned.placed(finding, key, own[0])


def _gate_ignored(events: Iterable[Event], planned: Planned) -> Iterable[Finding]:
    made = (e for e in events if not e.late and e.kind in MADE)
    for kernel, own in _by(made, lambda event: planned.name(event.key)).items():
        counts = ", ".join(
            f"{n} {one if n == 1 else many}"
            for kind, one, many in (
                ("compile", "compile", "compiles"),
                ("disk_hit", "disk hit", "disk hits"),
                ("load", "load", "loads"),
                ("tune", "tuning", "tunings"),
            )
            if (n := sum(event.kind == kind for event in own))
        )
        finding = Finding(
            "GATE-IGNORED",
            kernel,
            f"{kernel}: {counts} at start-up although warm-up is switched off "
            f"({_took(own)}{_on_ranks(own)})",
            seen=own[0].key,
            advice="put this warm-up behind the switch as well (kernel_config.enable_jit_warmup)",
        )
        yield planned.placed(finding, own[0].key, own[0])


def _duplicates(events: Iterable[Event], planned: Planned) -> Iterable[Finding]:
    compiled = (event for event in events if event.kind == "compile")
    for key, own in _by(compiled, lambda event: event.key).items():
        if len(own) < 2:
            continue
        kernel, ranks = planned.name(key), {event.rank for event in own}
        by = f"by {_ranks(ranks)}" if len(ranks) > 1 else "by one process"
        finding = Finding(
            "DUP",
            kernel,
            f"{kernel}: one key was compiled {len(own)} times {by}; "
            f"{redundant_seconds(own):.2f} s of it are redundant",
            seen=key,
            advice="share one cache folder and let one rank compile first, or hand the files over"
            if len(ranks) > 1
            else "compile it once and keep what the compiler returned",
        )
        yield planned.placed(finding, key, own[0])


def redundant_seconds(events: Iterable[Event]) -> float:
    """What the compiles of these events cost beyond one (the longest) for each key."""
    compiled = (event for event in events if event.kind == "compile")
    return sum(
        sum(e.ms for e in own) - max(e.ms for e in own)
        for own in _by(compiled, lambda event: event.key).values()
    ) / 1e3  # fmt: skip


def before_capture(
    events: Iterable[Event], needed: Iterable[str] | None = None, plan: Plannable = None
) -> tuple[Finding, ...]:
    """CAPTURE-UNSAFE findings before a capture is tried: what it would compile or load.

    `needed` are the keys that the captured launches need; without it, all that the events say was
    compiled. A key that was compiled and never loaded is loaded by its first launch; one that was
    not made at all would be compiled. Events have to reach back to the start of the process.
    """
    events = list(events)
    planned = Planned.of(plan)
    made = {e.key: e for e in reversed(events) if e.kind in ("compile", "disk_hit")}
    loaded = {event.key for event in events if event.kind == "load"}
    findings = []
    for key in dict.fromkeys(sorted(made) if needed is None else needed):
        kernel = planned.name(key)
        if key in loaded:
            continue
        if key in made:
            message = f"{kernel} is compiled and not loaded: a capture would load it"
            advice = "warm up to depth `loaded`, or launch it once before the capture"
        else:
            message = f"{kernel} is not compiled: a capture would compile it"
            advice = "warm it up before the capture"
        finding = Finding("CAPTURE-UNSAFE", kernel, message, seen=key, advice=advice)
        findings.append(planned.placed(finding, key, made.get(key)))
    return tuple(findings)


def _took(events: Iterable[Event]) -> str:
    return f"{sum(event.ms for event in events):.1f} ms"


def _on_ranks(events: Iterable[Event]) -> str:
    """`, ranks 0-3`; nothing for rank 0 alone, which is where there is one process."""
    ranks = {event.rank for event in events}
    return "" if ranks == {0} else f", {_ranks(ranks)}"


def _ranks(ranks: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in runs)
    return f"rank{'s' if len(runs) > 1 or runs[0][0] != runs[0][1] else ''} {shown}"
