"""What a measuring process is asked to do and what it answers: plain data, sent as JSON."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jitwarm.caches import CacheCount
from jitwarm.findings import Finding
from jitwarm.judge.coverage import Observed
from jitwarm.plan import Funnel, KernelRow, PlanKey
from jitwarm.proof.result import Proof
from jitwarm.record import DeviceRecord, FailedKey, MissRecord, RankPlan
from jitwarm.scenario import Case

# Arms that warm up, and how deep; `cold` does not warm.
DEPTH = {"loaded": "loaded", "disk": "loaded", "compiled": "compiled"}


class Job(msgspec.Struct, frozen=True):
    """One measuring process.

    `arm` is `cold`, `compiled`, `loaded` or `disk`, or `plan` (plan every rank of `ranks`, launch
    nothing), or `prove` (plan and prove every rank, and make some steps), or `check` (plan every
    rank, and replay the keys of those in `replayed`). With `replay_keys` no kernel is compiled:
    every miss gets a null kernel, so that only the needed keys are found.
    `hash_seed` is Python's in that process, None for what the environment says; `key_seconds` are
    seconds a key by kernel, as an earlier run measured them.
    """

    case: Case
    arm: str
    ranks: tuple[int, ...]
    steps: int
    device: str
    threads: int | None
    monitor: str
    progress: bool
    replay_keys: bool = False
    hash_seed: int | None = None
    key_seconds: dict[str, float] = {}
    replayed: tuple[int, ...] = ()


class KeyOutcome(msgspec.Struct, frozen=True):
    """What became of one backend key in warm-up."""

    key: str
    kernel: str
    status: str
    seconds: float
    reason: str = ""


class Warmed(msgspec.Struct, frozen=True):
    """The plan of the job's rank and what warming it did."""

    layers: int
    funnel: Funnel
    rows: tuple[KernelRow, ...]
    keys: tuple[PlanKey, ...]
    enumeration_s: float
    seconds: float
    cpu_seconds: float
    threads: int
    depth: str
    outcomes: tuple[KeyOutcome, ...]
    failed: tuple[FailedKey, ...]
    findings: tuple[Finding, ...]

    @property
    def ready(self) -> list[str]:
        """Backend keys that are ready."""
        return [outcome.key for outcome in self.outcomes if outcome.status == "warmed"]


class StepTimes(msgspec.Struct, frozen=True):
    """Milliseconds of the headline steps, and the mean host microseconds of a launch over the whole
    replay. `imports` are modules that the first prefill and the first decode step imported.
    """

    first_prefill: float | None
    first_decode: float | None
    later_prefill: tuple[float, ...]
    later_decode: tuple[float, ...]
    first_prefill_step: int
    launch_us: float
    imports: tuple[int, int] = (0, 0)


class RankProof(msgspec.Struct, frozen=True):
    """The proof of one rank, and how many real steps and launches it was held against."""

    rank: int
    proof: Proof
    steps: int
    launches: int


class RankReplay(msgspec.Struct, frozen=True):
    """What the traffic of one rank asked for, without a compiler: launches, the different keys they
    need, those that are not planned (choices of an autotuner among them), and keys of unplanned
    kernels that were launched inside of one that owns its compile. `kinds` counts steps by the kind
    of their batch; `running` names threads that still ran at the end.
    """

    rank: int
    steps: int
    launches: int
    needed: int
    misses: tuple[MissRecord, ...]
    untold: tuple[str, ...]
    kinds: dict[str, int] = {}
    running: tuple[str, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """What a measuring process found; `process` is its number among those of its arm."""

    arm: str
    device: DeviceRecord
    versions: dict[str, str]
    caches: dict[str, CacheCount]
    import_s: float
    peak_rss_bytes: int
    emits_token: bool
    checks: tuple[str, ...]
    ready_s: float = 0.0
    warmed: Warmed | None = None
    times: StepTimes | None = None
    observed: Observed | None = None
    plans: tuple[RankPlan, ...] = ()
    proofs: tuple[RankProof, ...] = ()
    ranks: tuple[Warmed, ...] = ()
    replays: tuple[RankReplay, ...] = ()
    process: int = 1


class Failure(msgspec.Struct, frozen=True):
    """Why a measuring process has no answer. `exit_code` is the command line's."""

    error: str
    trace: str
    exit_code: int


class Reply(msgspec.Struct, frozen=True):
    """One of the two."""

    answer: Answer | None = None
    failure: Failure | None = None


def read_job(path: Path) -> Job:
    """Read a job file."""
    return msgspec.json.decode(path.read_bytes(), type=Job)


def read_reply(path: Path) -> Reply:
    """Read a reply file."""
    return msgspec.json.decode(path.read_bytes(), type=Reply)
