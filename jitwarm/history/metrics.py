"""The numbers of a result that make a history: of the case, of each arm, and of each kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jitwarm.history.points import HIGHER, LOWER, NEITHER, Metric
from jitwarm.record import ArmRecord, KernelRecord, Result


@dataclass(frozen=True, slots=True)
class Reading:
    """A metric, and its number in one result with the smallest and largest sample."""

    metric: Metric
    value: float
    low: float | None = None
    high: float | None = None


def readings(result: Result) -> Iterator[Reading]:
    """Everything that is followed over commits, the most telling first."""
    funnel, coverage, loaded = result.funnel, result.coverage, result.arms.get("loaded")
    yield _count("missed", "missed keys, all ranks", "keys", result.missed)
    if loaded is not None:
        yield _sampled("ready_s", "start-up until ready", "s", loaded, "loaded")
    yield _count("binaries", "binaries (backend keys)", "keys", funnel.backend_keys)
    yield _count("keys", "declared keys", "keys", funnel.keys)
    yield _count("unreached", "warmed and never used", "keys", coverage.unreached)
    yield _count("needed", "needed by the traffic", "keys", coverage.needed, NEITHER)
    yield _count("dedup_ratio", "dedup of registrations", "x", funnel.dedup_ratio, HIGHER)
    yield _count("redundant", "compiled again", "compiles", result.warm.redundant_compiles)
    yield _count("failed", "keys that fail to warm", "keys", len(result.warm.failed))
    yield _count("findings", "findings of the plan", "findings", len(result.findings))
    for arm, record in result.arms.items():
        yield from _arm(arm, record)
    yield _time("import_s", "imports", "s", result.import_s)
    yield _time("enumeration_s", "enumeration of the keys", "s", result.enumeration_s)
    yield _time("warm_s", "warm-up", "s", result.warm.seconds)
    yield _time("launch_us", "host time of a launch", "us", result.launch_overhead_us)
    yield _time("peak_rss", "peak host memory", "MB", result.peak_rss_bytes / 1e6)
    for kernel in result.kernels:
        yield from _kernel(kernel)


def _arm(name: str, arm: ArmRecord) -> Iterator[Reading]:
    step = "token" if arm.is_first_token else "step"
    if name not in ("loaded", "cold"):
        yield _sampled("ready_s", f"start-up until ready, arm {name}", "s", arm, name)
    for field, title in (
        ("first_prefill_ms", f"first prefill {step}, {name}"),
        ("first_decode_ms", f"first decode {step}, {name}"),
        ("later_ms", f"later prefill steps, {name}"),
        ("later_decode_ms", f"later decode steps, {name}"),
    ):
        if getattr(arm, field) is not None:
            yield _sampled(field, title, "ms", arm, name)
    yield _count(f"compiles@{name}", f"compiled while serving, {name}", "compiles", arm.compiles)


def _kernel(kernel: KernelRecord) -> Iterator[Reading]:
    name = kernel.kernel
    yield _count(f"binaries:{name}", f"binaries of {name}", "keys", kernel.backend_keys)
    yield _count(f"missed:{name}", f"missed keys of {name}", "keys", kernel.missed)
    yield _count(f"unreached:{name}", f"never used of {name}", "keys", kernel.unreached)
    yield _time(f"seconds:{name}", f"worker time of {name}", "s", kernel.seconds)


def _count(name: str, title: str, unit: str, value: float, better: int = LOWER) -> Reading:
    return Reading(Metric(name, title, unit, exact=True, better=better), value)


def _time(name: str, title: str, unit: str, value: float) -> Reading:
    return Reading(Metric(name, title, unit, exact=False), value)


def _sampled(field: str, title: str, unit: str, arm: ArmRecord, name: str) -> Reading:
    samples = arm.raw.get(field) or []
    several = len(samples) > 1
    return Reading(
        Metric(f"{field}@{name}", title, unit, exact=False),
        getattr(arm, field),
        min(samples) if several else None,
        max(samples) if several else None,
    )
