"""The result of one case, schema 1: what `result.json` holds and every report reads."""

from __future__ import annotations

from typing import Any

import msgspec

from jitwarm.caches import CacheCount
from jitwarm.findings import Finding

SCHEMA = 1
# No count, time or size comes near; sums and products of such numbers are finite. What is stored
# and lies beyond is refused as damaged.
LARGEST = 1e18


class SourceRecord(msgspec.Struct, frozen=True):
    """The commit of the repository that the scenario file lies in, when the run began.

    `date` is the commit's own, ISO 8601; `dirty` whether tracked files differed from the commit.
    All empty where git knows no such repository, and in records of before there was this field.
    """

    commit: str = ""
    date: str = ""
    dirty: bool = False


class DeviceRecord(msgspec.Struct, frozen=True):
    """The device that was measured."""

    kind: str
    arch: str
    name: str
    driver: str


class FunnelRecord(msgspec.Struct, frozen=True):
    """The dedup funnel: registrations of all layers down to binaries, and what arm `loaded` did
    with them.
    """

    layers: int
    registrations: int
    distinct_registrations: int
    dedup_ratio: float
    points: int
    keys: int
    backend_keys: int
    compiled: int
    disk_hits: int
    loaded: int


class KernelRecord(msgspec.Struct, frozen=True):
    """The funnel of one kernel, with its coverage at the timed rank and the seconds its keys took
    in their workers.
    """

    kernel: str
    backend: str
    registrations: int
    distinct_registrations: int
    points: int
    keys: int
    backend_keys: int
    compiled: int
    seconds: float
    slowest_key: str
    no_keys_reason: str | None
    needed: int
    missed: int
    unreached: int

    @property
    def is_counted(self) -> bool:
        """Whether its launches are: a kernel that owns its compile may launch where nobody counts,
        and then its zeros say nothing.
        """
        return self.backend != "opaque" or bool(self.needed or self.missed or self.unreached)


class FailedKey(msgspec.Struct, frozen=True):
    """A key, or a kernel's enumeration, that could not be warmed."""

    kernel: str
    key: str
    error: str
    rank: int = 0


class WarmRecord(msgspec.Struct, frozen=True):
    """The warm-up of arm `loaded`.

    `redundant_compiles` counts compiles of a key that had been compiled before.
    """

    seconds: float
    cpu_seconds: float
    jobs: int
    depth: str
    warmed: int
    skipped: tuple[str, ...]
    failed: tuple[FailedKey, ...]
    redundant_compiles: int


class MissRecord(msgspec.Struct, frozen=True):
    """One backend key that traffic needed and warm-up did not make ready.

    `process` is empty for the process that coverage is of, else says which other one missed it
    ("process 2 of arm loaded").
    """

    kernel: str
    key: str
    first_step: int
    count: int
    ms: float
    finding: Finding
    rank: int = 0
    process: str = ""


class CoverageRecord(msgspec.Struct, frozen=True):
    """Coverage in backend keys: `needed` by launches, `warmed` by the plan, `hit`, `missed`,
    `unreached` (warmed, never asked for).

    `unreached_declared` counts declared keys none of whose launches came. `rank` is whose it is.
    At the timed rank it is of the first process of arm `loaded`, and of what the other processes
    that warm up missed.
    """

    rank: int
    steps: int
    launches: int
    needed: int
    warmed: int
    hit: int
    missed: int
    unreached: int
    unreached_declared: int
    misses: tuple[MissRecord, ...]
    unreached_keys: tuple[str, ...]


class ArmRecord(msgspec.Struct, frozen=True):
    """One arm: medians over `samples` fresh processes, milliseconds unless said.

    `ready_s`: planning and warming. `first_*`: the first step of that kind; `later_*`: median of
    its repeats. `excess_ms` is first prefill minus its later median, `excess_decode_ms` the same
    for decode. A figure is None where the traffic has no such step, or no repeat of it. `spread` is
    (largest - smallest) / median of the first step, None with one sample. `compiles`, `disk_hits`
    and `loads` while serving are those of the process with most. `load_ms` sums the loads
    while serving; `first_step_event_ms` all events of the first prefill step, `first_step_load_ms`
    the loads among them. `is_first_token` only where the model emits a token.
    """

    samples: int
    ready_s: float
    first_prefill_ms: float | None
    first_decode_ms: float | None
    later_ms: float | None
    later_decode_ms: float | None
    excess_ms: float | None
    excess_decode_ms: float | None
    spread: float | None
    compiles: int
    disk_hits: int
    loads: int
    load_ms: float
    first_step_event_ms: float
    first_step_load_ms: float
    is_first_token: bool
    raw: dict[str, list[float]]


class RankPlan(msgspec.Struct, frozen=True):
    """The plan of one rank: how many keys, and the hash over its sorted backend keys."""

    rank: int
    keys: int
    backend_keys: int
    digest: str


class Result(msgspec.Struct, frozen=True):
    """One case, everything measured about it. `checks` are doubts about this very measurement,
    `failures` the arms, ranks and plans whose process died (none are known of results of before
    there was this field).
    """

    schema: int
    scenario: str
    case: dict[str, Any]
    scenario_sha256: str
    started_at: str
    device: DeviceRecord
    versions: dict[str, str]
    caches: dict[str, CacheCount]
    funnel: FunnelRecord
    kernels: tuple[KernelRecord, ...]
    warm: WarmRecord
    coverage: CoverageRecord
    rank_coverage: tuple[CoverageRecord, ...]
    rank_plans: tuple[RankPlan, ...]
    arms: dict[str, ArmRecord]
    launch_overhead_us: float
    enumeration_s: float
    import_s: float
    peak_rss_bytes: int
    findings: tuple[Finding, ...]
    checks: tuple[str, ...]
    source: SourceRecord = SourceRecord()
    failures: tuple[str, ...] = ()

    @property
    def missed(self) -> int:
        """Missed keys over all replayed ranks."""
        return self.coverage.missed + sum(other.missed for other in self.rank_coverage)

    @property
    def idle_ranks(self) -> list[int]:
        """Replayed ranks at which no launch was counted: no miss there shows nothing."""
        return [c.rank for c in (self.coverage, *self.rank_coverage) if not c.launches]

    @property
    def is_partial(self) -> bool:
        """Whether something of it did not run, so that no miss in the rest shows nothing."""
        return bool(self.failures or self.warm.failed or self.idle_ranks)


def encode(value: Any) -> bytes:
    """JSON of a record, indented, keys in schema order, newline at the end."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
