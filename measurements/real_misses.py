"""Late work of each kind, really done: is it told as what it is, and are its milliseconds right?

    python -m measurements.real_misses [--device stub|cuda] [--processes 5] [--only KIND] [--json]

Each kind and sample is a fresh process with cold caches: it warms its subject, watches, makes
steady steps, then steps that hold the missing launch as well. The first of these pays. Its excess
is its time less the median of the later ones; the events of that step have to add up to it within
20 % or 2 ms, and to be judged as the right finding. Figures are medians over the processes.

`refusals` are milliseconds of the first and the second refused launch of a fresh process in mode
`error`, for the same launch. On a stub device nothing is loaded and nothing is timed for a tuning.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from jitwarm import JitWarmupRegistry, Monitor, caches, make_plan
from jitwarm.device import Device, activate
from jitwarm.errors import CompileRefused
from jitwarm.judge.events import blame, judge
from jitwarm.plan import Plan
from jitwarm.warm import warm
from measurements.miss_subjects import SUBJECTS, Subject

STEPS = 12
REFUSAL_MS = 5.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What one process saw: the finding that was expected as (kind, field), those found as (kind,
    field, advice), milliseconds of the excess and of its events, and of refusals.
    """

    expected: list[str]
    findings: list[list[str]]
    message: str
    excess_ms: float
    event_ms: float
    kinds: dict[str, int]
    refusals: list[float]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind over its processes."""

    subject: str
    finding: str
    field: str
    events: str
    event_ms: float
    excess_ms: float
    refusals: str
    wrong: str


def sample(name: str, kind: str) -> Sample:
    """Do one kind in this process."""
    device = activate(kind, "sm90" if kind == "stub" else None)
    subject = SUBJECTS[name](device.torch_device)
    plan = _warmed(subject)
    refusals = _refusals(subject, plan) if subject.finding in ("MISS", "AUTOTUNE") else []
    spent: list[float] = []
    with Monitor("record") as monitor:
        for step in range(2 * STEPS):
            monitor.step = step
            spent.append(_timed(subject, device, missing=step >= STEPS))
        events = list(monitor.events)
    first, *later = spent[STEPS:]
    usual = statistics.median(later) if subject.finding != "NOT-JIT" else statistics.median(spent)
    findings = judge(events, plan)
    if subject.finding == "NOT-JIT":
        findings += blame(spent[: STEPS + 1], events)
    return Sample(
        [subject.finding, subject.argument],
        [[one.kind, one.field, one.advice] for one in findings],
        findings[0].message if findings else "",
        first - usual,
        sum(event.ms for event in events if not event.in_tuning or event.kind == "tune"),
        {k: sum(e.kind == k for e in events) for k in dict.fromkeys(e.kind for e in events)},
        refusals,
    )


def _warmed(subject: Subject) -> Plan:
    registry = JitWarmupRegistry(subject.config)
    with registry.activate():
        subject.register()
    plan = make_plan(registry)
    kept = tuple(item for item in plan.items if subject.keep(item.declared or ""))
    plan = dataclasses.replace(plan, items=kept)
    warm(plan, depth=subject.depth).raise_failures()
    return plan


def _refusals(subject: Subject, plan: Plan) -> list[float]:
    """Milliseconds until the first and the second launch were refused; empty if one was not."""
    spent = []
    with Monitor("error", plan=plan):
        for _ in range(2):
            start = time.perf_counter()
            try:
                subject.miss()
            except CompileRefused:
                spent.append((time.perf_counter() - start) * 1e3)
    return spent


def _timed(subject: Subject, device: Device, *, missing: bool) -> float:
    device.synchronize()
    start = time.perf_counter()
    subject.steady()
    if missing:
        subject.miss()
    device.synchronize()
    return (time.perf_counter() - start) * 1e3


def measured(name: str, kind: str, processes: int) -> Row:
    """One kind in fresh processes."""
    samples = [_in_a_process(name, kind) for _ in range(processes)]
    expected = samples[0].expected
    excess = statistics.median(one.excess_ms for one in samples)
    events = statistics.median(one.event_ms for one in samples)
    seen = {tuple(found[:2]) for one in samples for found in one.findings}
    wrong = []
    if {found[0] for found in seen} != {expected[0]}:
        wrong.append(f"judged as {sorted(found[0] for found in seen)}")
    if expected[1] and expected[1] not in {found[1] for found in seen}:
        wrong.append(f"field {sorted(found[1] for found in seen)}")
    if expected[0] != "NOT-JIT" and abs(excess - events) > max(0.2 * excess, 2.0):
        wrong.append("events do not add up to the excess")
    if not all(found[2] for one in samples for found in one.findings):
        wrong.append("a finding without advice")
    if any(len(one.refusals) != 2 for one in samples) and expected[0] in ("MISS", "AUTOTUNE"):
        wrong.append("not refused twice")
    refusals = [
        statistics.median(pair) for pair in zip(*(s.refusals for s in samples), strict=False)
    ]
    if refusals and max(refusals) > REFUSAL_MS:
        wrong.append("a refusal was slow")
    return Row(
        name,
        ", ".join(sorted(found[0] for found in seen)),
        ", ".join(sorted(found[1] for found in seen)),
        ", ".join(f"{count} {event}" for event, count in samples[0].kinds.items()),
        events,
        excess,
        " / ".join(f"{ms:.2f}" for ms in refusals) or "-",
        "; ".join(wrong),
    )


def _in_a_process(name: str, kind: str) -> Sample:
    with tempfile.TemporaryDirectory(prefix="jitwarm-", ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "measurements.real_misses", "--one", name, "--device", kind],
            env=os.environ | caches.isolated(Path(folder)),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-3000:]}")
    return Sample(**json.loads(done.stdout.splitlines()[-1]))


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if something was told wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("stub", "cuda"), default="stub")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--only", action="append", choices=tuple(SUBJECTS))
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--one", choices=tuple(SUBJECTS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(asdict(sample(options.one, options.device))))
        return 0
    rows = []
    for name in options.only or SUBJECTS:
        rows.append(measured(name, options.device, options.processes))
        print(name, rows[-1].wrong or "as expected", file=sys.stderr, flush=True)
    print("\n".join(json.dumps(asdict(row)) for row in rows) if options.json else _table(rows))
    return int(any(row.wrong for row in rows))


def _table(rows: list[Row]) -> str:
    head = ["kind", "finding", "field", "events", "events ms", "excess ms", "refusal ms", "wrong"]
    body: list[list[Any]] = [
        [
            row.subject,
            row.finding,
            row.field,
            row.events,
            f"{row.event_ms:.1f}",
            f"{row.excess_ms:.1f}",
            row.refusals,
            row.wrong or "-",
        ]
        for row in rows
    ]
    return str(tabulate(body, headers=head, tablefmt="plain", disable_numparse=True))


if __name__ == "__main__":
    sys.exit(main())
