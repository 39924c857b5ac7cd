"""The table of one case, as text. Formatting returns the text; printing is the command line's."""

from __future__ import annotations

from jitwarm.amounts import counted
from jitwarm.record import ArmRecord, Result
from jitwarm.report.plan import failure_lines
from jitwarm.report.table import kernel_table, of_a_kind, table

ORDER = ("cold", "loaded", "disk", "compiled")


def result_text(result: Result, folder: str) -> str:
    """Everything a person wants of one case: what it is, the funnel, a row a kernel, a row an arm,
    the verdict, the doubts.
    """
    blocks = [_head(result), _kernels(result), _arms(result), _verdict(result, folder)]
    return "\n\n".join(block for block in blocks if block)


def _head(result: Result) -> str:
    device = result.device
    own = result.case["axes"]
    named = own if "arch" in own else own | {"arch": device.arch}
    axes = " ".join(f"{name}={value}" for name, value in named.items())
    note = (
        "stub device (no GPU): real keys and binaries, host times only"
        if device.kind == "stub"
        else f"{device.name}, driver {device.driver}"
    )
    funnel, options = result.funnel, result.case.get("options") or {}
    chosen = " ".join(f"{name}={_plain(value)}" for name, value in options.items())
    chosen = f"options: {chosen}\n" if chosen else ""
    return (
        f"{result.scenario}  {axes}     {note}\n"
        f"{chosen}"
        f"{counted(funnel.layers, 'layer')}: {counted(funnel.registrations, 'registration')} -> "
        f"{funnel.distinct_registrations} distinct ({funnel.dedup_ratio:.1f}x) -> "
        f"{counted(funnel.keys, 'key')} -> {counted(funnel.backend_keys, 'binary', 'binaries')}; "
        f"{_ready(result)}"
    )


def _plain(value: object) -> str:
    """A value as a scenario file writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ready(result: Result) -> str:
    if result.warm.skipped and not result.warm.warmed:
        return "warm-up is off, nothing compiled"
    return f"ready in {result.arms['loaded'].ready_s:.1f} s with {counted(result.warm.jobs, 'job')}"


def _kernels(result: Result) -> str:
    head = [
        "kernel",
        "registered",
        "distinct",
        "keys",
        "binaries",
        "seconds",
        "needed",
        "missed",
        "unreached",
    ]
    rows: list[list[object]] = [
        [
            k.kernel,
            k.registrations,
            k.distinct_registrations,
            k.keys,
            k.backend_keys,
            f"{k.seconds:.1f}",
            *((k.needed, k.missed, k.unreached) if k.is_counted else "---"),
        ]
        for k in result.kernels
    ]
    funnel, coverage = result.funnel, result.coverage
    total: list[object] = [
        "total",
        funnel.registrations,
        funnel.distinct_registrations,
        funnel.keys,
        funnel.backend_keys,
        f"{sum(k.seconds for k in result.kernels):.1f}",
        coverage.needed,
        coverage.missed,
        coverage.unreached,
    ]
    reasons = [
        f"  {k.kernel}: no keys: {k.no_keys_reason}" for k in result.kernels if k.no_keys_reason
    ]
    backends = [k.backend for k in result.kernels]
    return "\n".join([kernel_table(head, rows, backends, total), *reasons])


def _arms(result: Result) -> str:
    first = (
        "first token" if any(arm.is_first_token for arm in result.arms.values()) else "first step"
    )
    head = [
        first,
        "ready s",
        "prefill ms",
        "decode ms",
        "later ms",
        "excess ms",
        "compiled",
        "from disk",
        "loaded",
    ]
    stub = result.device.kind == "stub"
    rows = [_arm(name, result.arms[name], stub=stub) for name in ORDER if name in result.arms]
    lines = [table(head, rows)]
    if stub:
        lines.append("compiled         = loaded (no module load on a stub device)")
    else:
        lines += _spreads(result)
    return "\n".join(lines)


def _arm(name: str, arm: ArmRecord, *, stub: bool) -> list[object]:
    return [
        name,
        f"{arm.ready_s:.1f}",
        _ms(arm.first_prefill_ms),
        _ms(arm.first_decode_ms),
        _both(arm.later_ms, arm.later_decode_ms),
        _both(arm.excess_ms, arm.excess_decode_ms),
        arm.compiles,
        arm.disk_hits,
        "-" if stub else arm.loads,
    ]


def _both(prefill: float | None, decode: float | None) -> str:
    """The figure of the prefill shape and of the decode shape."""
    return f"{_ms(prefill)} / {_ms(decode)}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _spreads(result: Result) -> list[str]:
    parts = [
        f"{name} {min(raw):.1f}..{max(raw):.1f}"
        for name in ORDER
        if name in result.arms and len(raw := result.arms[name].raw["first_prefill_ms"]) > 1
    ]
    samples = max(arm.samples for arm in result.arms.values())
    processes = counted(samples, "process", "processes")
    return [f"prefill ms over {processes}: {', '.join(parts)}"] if parts else []


def _verdict(result: Result, folder: str) -> str:
    lines = failure_lines(result.warm.failed)
    for coverage in (result.coverage, *result.rank_coverage):
        shown, more = of_a_kind(coverage.misses, lambda miss: miss.kernel)
        for miss in shown:
            when = (
                f"first in step {miss.first_step}, {counted(miss.count, 'launch', 'launches')}"
                if miss.first_step >= 0
                else counted(miss.count, "launch", "launches")
            )
            where = f"{coverage.rank}, {miss.process}," if miss.process else coverage.rank
            lines.append(f"MISSED rank {where} {when}: {miss.finding.message}")
            lines.append(f"  key {miss.key}")
            lines.append(f"  do: {miss.finding.advice}")
        lines += [f"MISSED rank {coverage.rank} {one}" for one in more]
    lines += [f"{finding.kind} {finding.message}" for finding in result.findings]
    lines += [f"RUN-FAILED {failure}" for failure in result.failures]
    lines += [
        f"NOTHING LAUNCHED at rank {rank}: this run shows nothing" for rank in result.idle_ranks
    ]
    own = result.coverage
    ranks = f" at rank {own.rank}" if result.rank_coverage else ""
    unused = counted(own.unreached, "warmed binary", "warmed binaries")
    lines.append(
        f"{own.missed} missed in {counted(own.steps, 'step')}{ranks}; "
        f"{unused} never used ({_wasted_seconds(result):.1f} s); {folder}"
    )
    if result.rank_coverage:
        others = ", ".join(
            f"rank {c.rank}: {c.missed} missed of {c.needed} needed" for c in result.rank_coverage
        )
        steps = counted(result.rank_coverage[0].steps, "step")
        lines.append(f"other ranks, {steps} each: {others}")
    lines += [f"note: {check}" for check in result.checks]
    return "\n".join(lines)


def _wasted_seconds(result: Result) -> float:
    """Worker seconds of the unreached keys, by their share of their kernel's keys."""
    return sum(k.seconds * k.unreached / k.backend_keys for k in result.kernels if k.backend_keys)
