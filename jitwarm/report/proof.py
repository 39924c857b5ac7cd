"""What `jitwarm prove` says: a verdict a kernel, and every finding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from jitwarm.amounts import counted
from jitwarm.findings import Finding
from jitwarm.jobs import Answer, RankProof, Warmed
from jitwarm.proof.compare import NUMBER, Difference, difference
from jitwarm.proof.result import STRENGTH, Verdict
from jitwarm.record import SCHEMA, DeviceRecord, FailedKey, RankPlan
from jitwarm.report.plan import failure_lines
from jitwarm.report.table import kernel_table, of_a_kind
from jitwarm.scenario import Case, Scenario

HEAD = ["kernel", "verdict", "points", "needed", "planned", "missing", "unreached"]


class ProvedKernel(msgspec.Struct, frozen=True):
    """One kernel over all ranks: the weakest verdict, points and gaps added up, and the fewest and
    the most keys of a rank.
    """

    kernel: str
    backend: str
    verdict: Verdict
    points: int
    of: int
    needed: tuple[int, int]
    planned: tuple[int, int]
    missing: int
    unreached: int
    spared: int
    reasons: tuple[str, ...] = ()
    no_keys_reason: str | None = None


class ProofRecord(msgspec.Struct, frozen=True):
    """The proof of one case: parts of the result schema, `proof` a row a kernel, and `ranks`."""

    schema: int
    scenario: str
    case: Case
    scenario_sha256: str
    device: DeviceRecord
    versions: dict[str, str]
    layers: int
    proof: tuple[ProvedKernel, ...]
    ranks: tuple[RankProof, ...]
    rank_plans: tuple[RankPlan, ...]
    failed: tuple[FailedKey, ...]
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether every kernel is proved (or needs no key) and nothing is wrong."""
        return self.is_proved and not self.findings

    @property
    def is_proved(self) -> bool:
        """Whether no kernel is only searched or sampled, whatever was found."""
        return all(kernel.verdict in ("PROVED", "NO KEYS") for kernel in self.proof)


def proof_record(scenario: Scenario, case: Case, proved: Answer, planned: Answer) -> ProofRecord:
    """Everything that the two processes of a proof found."""
    assert proved.warmed is not None  # the process that proves has planned
    reasons = {row.kernel: row.no_keys_reason for row in proved.warmed.rows}
    names = dict.fromkeys(kernel.kernel for one in proved.proofs for kernel in one.proof.kernels)
    findings = [f for one in proved.proofs for f in one.proof.findings]
    findings += [f for f in proved.warmed.findings if f not in findings]
    findings += _unstable(proved, planned)
    return ProofRecord(
        schema=SCHEMA,
        scenario=scenario.name,
        case=case,
        scenario_sha256=scenario.sha256,
        device=proved.device,
        versions=proved.versions,
        layers=proved.warmed.layers,
        proof=tuple(_over_ranks(name, proved.proofs, reasons.get(name)) for name in names),
        ranks=proved.proofs,
        rank_plans=proved.plans,
        failed=proved.warmed.failed,
        findings=tuple(dict.fromkeys(findings)),
    )


def proof_text(record: ProofRecord) -> str:
    """A row a kernel, then the findings, then what it was held against."""
    case = record.case
    where = f"{record.device.name}: keys of {record.device.arch}, nothing compiled"
    kernels, more = of_a_kind(record.proof, lambda kernel: kernel.kernel)
    rows = [_row(kernel) for kernel in kernels]
    lines = [
        f"{case.title}     {where}",
        f"{counted(record.layers, 'layer')}, {counted(len(record.ranks), 'rank')}",
    ]
    if rows:
        lines += ["", kernel_table(HEAD, rows, [kernel.backend for kernel in kernels]), *more]
    lines += [
        f"  {kernel.kernel}: no keys: {kernel.no_keys_reason}"
        for kernel in kernels
        if kernel.no_keys_reason
    ]
    lines += [
        f"  {kernel.kernel}: {kernel.verdict}: {reason}"
        for kernel in kernels
        for reason in _why(kernel)
    ]
    lines += failure_lines(record.failed)
    lines += [""] * bool(record.findings)
    shown, more = of_a_kind(record.findings, lambda finding: finding.kernel)
    lines += [line for finding in shown for line in finding_lines(finding)]
    lines += more
    if not rows:
        return "\n".join([*lines, "", "nothing was proved"])
    steps = max((one.steps for one in record.ranks), default=0)
    launches = sum(one.launches for one in record.ranks)
    missing, unreached, spared = (
        sum(getattr(kernel, name) for kernel in record.proof)
        for name in ("missing", "unreached", "spared")
    )
    kept = f" ({spared} more kept on purpose)" if spared else ""
    held = f"held against {counted(launches, 'launch', 'launches')} of "
    held += f"{counted(steps, 'real step')} a rank"
    gaps = f"{missing} missing, {unreached} unreached{kept}"
    lines += ["", f"{gaps}; {_verdicts(record.proof)}; {held}"]
    return "\n".join(lines)


def finding_lines(finding: Finding) -> list[str]:
    """One finding for people: what, where from, what to do."""
    lines = [f"{finding.kind} {finding.message}"]
    if finding.smallest:
        lines.append(f"    smallest input: {finding.smallest}")
    if finding.site:
        lines.append(f"    launched by: {finding.site}")
    if finding.owners:
        shown = ", ".join(finding.owners[:2])
        more = f" and {len(finding.owners) - 2} more" if len(finding.owners) > 2 else ""
        lines.append(f"    registered by: {shown}{more}")
    if finding.advice:
        lines.append(f"    {finding.advice}")
    return lines


def _why(kernel: ProvedKernel) -> list[str]:
    """Why a kernel is not proved: at most three reasons, and how many more there are."""
    if kernel.verdict in ("PROVED", "NO KEYS"):
        return []
    more = len(kernel.reasons) - 3
    return [*kernel.reasons[:3], *([counted(more, "more reason")] if more > 0 else [])]


def _over_ranks(name: str, proofs: Sequence[RankProof], reason: str | None) -> ProvedKernel:
    found = [k for one in proofs for k in one.proof.kernels if k.kernel == name]
    return ProvedKernel(
        kernel=name,
        backend=next((k.backend for k in found if k.backend != "-"), "-"),
        verdict=max((k.verdict for k in found), key=STRENGTH.index),
        points=sum(k.points for k in found),
        of=sum(k.of for k in found),
        needed=_range(k.needed for k in found),
        planned=_range(k.planned for k in found),
        missing=sum(k.missing for k in found),
        unreached=sum(k.unreached for k in found),
        spared=sum(getattr(k, "spared", 0) for k in found),
        reasons=tuple(dict.fromkeys(one for k in found for one in k.reasons)),
        no_keys_reason=reason,
    )


def _range(numbers: Iterable[int]) -> tuple[int, int]:
    known = list(numbers)
    return min(known), max(known)


def _row(kernel: ProvedKernel) -> list[Any]:
    points = f"{kernel.points:,}"
    if kernel.of != kernel.points:
        points += f" of {kernel.of:,}"
    return [
        kernel.kernel,
        kernel.verdict,
        points,
        _span(kernel.needed),
        _span(kernel.planned),
        kernel.missing,
        kernel.unreached,
    ]


def _span(ends: tuple[int, int]) -> str:
    low, high = ends
    return str(low) if low == high else f"{low}..{high}"


def _verdicts(kernels: Iterable[ProvedKernel]) -> str:
    counts = dict.fromkeys(STRENGTH, 0)
    for kernel in kernels:
        counts[kernel.verdict] += 1
    words = {"PROVED": "proved", "SEARCHED": "searched", "SAMPLED": "sampled", "NO KEYS": "no keys"}
    return ", ".join(f"{count} {words[verdict]}" for verdict, count in counts.items() if count)


def _unstable(proved: Answer, planned: Answer) -> Iterable[Finding]:
    """Kernels whose plan has other keys in another process, planned in another order: the first
    rank of each where that shows.
    """
    others = {plan.rank: one for plan, one in zip(planned.plans, planned.ranks, strict=True)}
    told: set[str] = set()
    for plan, warmed in zip(proved.plans, proved.ranks, strict=True):
        here, there = _keys_of(warmed), _keys_of(others[plan.rank])
        for kernel in {**here, **there}:
            one, other = here.get(kernel, []), there.get(kernel, [])
            if one != other and kernel not in told:
                told.add(kernel)
                yield _unstable_kernel(kernel, plan.rank, one, other)


def _unstable_kernel(kernel: str, rank: int, one: list[str], other: list[str]) -> Finding:
    differs = difference(one, other)
    said = (
        f"has `{differs.field}` as {differs.warmed} in one process and as {differs.seen} in another"
    )
    if differs.field == NUMBER:
        said = f"has {counted(len(one), 'key')} in one process and {len(other)} in another"
        differs = Difference("", "", "")
    return Finding(
        "KEY-UNSTABLE",
        kernel,
        f"{kernel}: its plan at rank {rank} {said}",
        *differs,
        advice="a key depends on the process, on the hash seed, or on what was built before: "
        "declare keys that follow from the configuration alone",
    )


def _keys_of(warmed: Warmed) -> dict[str, list[str]]:
    """The backend keys of a plan by kernel, in order of their text."""
    found: dict[str, dict[str, None]] = {}
    for key in sorted(warmed.keys, key=lambda one: one.backend_key):
        found.setdefault(key.kernel, {})[key.backend_key] = None
    return {kernel: list(keys) for kernel, keys in found.items()}
