"""Slow steps that no event explains: not every stall is a compile."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from jitwarm.findings import Finding
from jitwarm.observe.events import Event

# Of the compiles of a step. The first one of a process has Triton import 52 modules before it:
# 9 to 15 % of the compile (52 of 413 ms on a quiet machine, 123 of 1038 ms on a busy one), and 99 %
# of what its event leaves out; with these imported before, that is 0.1 to 0.7 %.
AROUND_COMPILES = 1 / 3


def is_slow(
    own_ms: float,
    usual_ms: float,
    *,
    compiled_ms: float = 0.0,
    times: float = 3.0,
    least_ms: float = 1.0,
) -> bool:
    """Whether a step took too long, its events taken off, against what its like take as a rule.

    `compiled_ms` are those of its compiles, whose surroundings take time of their own.
    """
    return (
        own_ms > times * usual_ms
        and own_ms - usual_ms > least_ms
        and own_ms > AROUND_COMPILES * compiled_ms
    )


def blame(
    step_ms: Sequence[float] | Mapping[int, float],
    events: Iterable[Event],
    *,
    peers: Sequence[Hashable] | Mapping[int, Hashable] | None = None,
    times: float = 3.0,
    least_ms: float = 1.0,
) -> tuple[Finding, ...]:
    """NOT-JIT findings: steps that were slow, and no event accounts for it.

    `step_ms` is the wall time of each step in ms, `events` those of the same process. A step is
    slow if it took more than `times` the median of the other steps with the same label in `peers`
    (a batch's shape; without it all are alike) and `least_ms` more than that. The time of its own
    events is taken off before, so a step that waited for a compile is not blamed twice; where it
    did, what is left has to be more than a third of the compiles (`AROUND_COMPILES`).
    """
    took = dict(step_ms.items() if isinstance(step_ms, Mapping) else enumerate(step_ms))
    labels: Mapping[Any, Hashable] = (
        {} if peers is None else peers if isinstance(peers, Mapping) else dict(enumerate(peers))
    )
    explained: dict[int, float] = {}
    compiled: dict[int, float] = {}
    for event in events:
        explained[event.step] = explained.get(event.step, 0.0) + event.ms
        if event.kind == "compile":
            compiled[event.step] = compiled.get(event.step, 0.0) + event.ms
    findings = []
    for step, ms in took.items():
        others = [t for s, t in took.items() if s != step and labels.get(s) == labels.get(step)]
        if not others:
            continue
        usual, own = statistics.median(others), ms - explained.get(step, 0.0)
        around = compiled.get(step, 0.0)
        if is_slow(own, usual, compiled_ms=around, times=times, least_ms=least_ms):
            findings.append(_not_jit(step, ms, usual, explained.get(step)))
    return tuple(findings)


def _not_jit(step: int, ms: float, usual: float, explained: float | None) -> Finding:
    why = "nothing was compiled, loaded or tuned in it"
    if explained is not None:
        why = f"compiles, loads and tunings account for {explained:.1f} ms of it only"
    return Finding(
        "NOT-JIT",
        "",
        f"step {step} took {ms:.1f} ms against {usual:.1f} ms as a rule, and {why}",
        field="step",
        warmed=f"{usual:.1f} ms",
        seen=f"{ms:.1f} ms",
        smallest=f"step {step}",
        advice="look for another cause: the host's scheduler, the clocks of the GPU, the garbage "
        "collector, communication, or a compiler that the monitor does not see (its blind spots)",
    )
