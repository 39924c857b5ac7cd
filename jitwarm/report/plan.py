"""What `jitwarm plan` and `jitwarm warm` say: the parts of the result that they know."""

from __future__ import annotations

from typing import Any

import msgspec

from jitwarm.amounts import counted
from jitwarm.jobs import Answer, Warmed
from jitwarm.record import SCHEMA, FailedKey
from jitwarm.report.table import kernel_table
from jitwarm.scenario import Case

HEAD = ["kernel", "registered", "distinct", "points", "keys", "binaries"]


def plan_record(case: Case, answer: Answer, warmed: Warmed) -> dict[str, Any]:
    """The fields of the result schema that are known without traffic."""
    known: dict[str, Any] = {
        "schema": SCHEMA,
        "scenario": case.name,
        "case": msgspec.to_builtins(case),
        "device": answer.device,
        "versions": answer.versions,
        "funnel": {"layers": warmed.layers} | msgspec.structs.asdict(warmed.funnel),
        "kernels": warmed.rows,
        "keys": warmed.keys,
        "rank_plans": answer.plans,
        "enumeration_s": warmed.enumeration_s,
        "failed": warmed.failed,
        "findings": warmed.findings,
    }
    if answer.arm != "plan":
        known["warm"] = {
            "seconds": warmed.seconds,
            "cpu_seconds": warmed.cpu_seconds,
            "jobs": warmed.threads,
            "depth": warmed.depth,
            "warmed": len(warmed.ready),
        }
    return known


def plan_text(case: Case, answer: Answer, warmed: Warmed) -> str:
    """The funnel, a row a kernel, a line a rank, and everything that is wrong."""
    funnel = warmed.funnel
    summary = (
        f"{counted(warmed.layers, 'layer')}: {counted(funnel.registrations, 'registration')} -> "
        f"{funnel.distinct_registrations} distinct ({funnel.dedup_ratio:.1f}x) -> "
        f"{counted(funnel.points, 'point')} -> {counted(funnel.keys, 'key')} -> "
        f"{counted(funnel.backend_keys, 'binary', 'binaries')}"
    )
    if answer.arm != "plan":
        jobs = counted(warmed.threads, "job")
        summary += f"; {len(warmed.ready)} ready in {answer.ready_s:.1f} s with {jobs}"
    rows = [
        [r.kernel, r.registrations, r.distinct_registrations, r.points, r.keys, r.backend_keys]
        for r in warmed.rows
    ]
    table = kernel_table(HEAD, rows, [r.backend for r in warmed.rows])
    lines = [case.title, summary, "", table]
    lines += [f"  {r.kernel}: no keys: {r.no_keys_reason}" for r in warmed.rows if r.no_keys_reason]
    lines += [
        f"  rank {p.rank}: {counted(p.keys, 'key')}, "
        f"{counted(p.backend_keys, 'binary', 'binaries')}, key set {p.digest}"
        for p in answer.plans
    ]
    lines += failure_lines(warmed.failed)
    lines += [f"{finding.kind} {finding.message}" for finding in warmed.findings]
    return "\n".join(lines)


def failure_lines(failed: tuple[FailedKey, ...]) -> list[str]:
    """One line for each different failure, with how many keys it hit."""
    alike: dict[tuple[str, str], list[FailedKey]] = {}
    for one in failed:
        alike.setdefault((one.kernel, one.error), []).append(one)
    lines = []
    for (kernel, error), ones in alike.items():
        ranks = sorted({one.rank for one in ones})
        keys = len({one.key for one in ones if one.key})
        where = [counted(keys, "key")] * (keys > 1) + [f"ranks {ranks}"] * (ranks != [0])
        detail = f" ({', '.join(where)})" if where else ""
        lines.append(f"FAILED {kernel}{detail}: {error}")
    return lines
