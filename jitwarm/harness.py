"""Run one case: every arm in fresh processes with caches of their own, then the other ranks, then
one result.

Arms are timed one at a time, alone on the machine. Coverage replays and the plans of all ranks are
counts, so two of them run at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jitwarm import atomic, caches
from jitwarm.amounts import counted
from jitwarm.errors import ArmFailed, NotWrittenError, UsageError, WorkerError
from jitwarm.jobs import DEPTH, Answer, Job, Reply, read_reply
from jitwarm.scenario import Case

# Steps of every process but the first of arm `loaded`: enough for the headline's repeats.
SHORT = 50
SIDE_BY_SIDE = 2
# In this order: `disk` needs the caches that `loaded` fills. `compiled` differs on a GPU only.
ARMS = ("cold", "loaded", "disk", "compiled")
# What a model prints is a note: our stdout is for data alone.
STDERR = 2
# The command of a measuring process, without the paths of its job and its reply.
WORKER = (sys.executable, "-m", "jitwarm.worker")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run: samples an arm, steps of the traffic (None: the scenario's), device kind, compile
    threads, monitor mode, and which arms. Arm `loaded` is always run: coverage is of it.
    """

    samples: int = 1
    steps: int | None = None
    device: str = "stub"
    threads: int | None = None
    monitor: str = "record"
    arms: tuple[str, ...] = ARMS

    def steps_of(self, case: Case) -> int:
        """Steps of the coverage replays."""
        return self.steps or case.traffic.steps


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything the processes of one case answered; `failures` names arms, ranks and plans that
    died.
    """

    arms: dict[str, list[Answer]]
    ranks: list[Answer]
    plan: Answer | None
    failures: list[str]


def measure(case: Case, settings: Settings, note: Callable[[str], None]) -> Measured:
    """Run all processes of a case. `note` is told what starts.

    Raises `ArmFailed` if arm `loaded` has no answer, because then there is nothing to report; any
    other failure is kept.
    """
    wanted = {"loaded", *settings.arms}
    if settings.device != "cuda":
        wanted.discard("compiled")
    arms = [arm for arm in ARMS if arm in wanted]
    answers: dict[str, list[Answer]] = {arm: [] for arm in arms}
    failures: list[str] = []
    with _scratch() as scratch:
        root = Path(scratch)
        for sample in range(settings.samples):
            for arm in arms:
                note(f"{case.title}: arm {arm}, process {sample + 1} of {settings.samples}")
                steps = settings.steps_of(case)
                if arm != "loaded" or sample:
                    steps = min(steps, SHORT)
                job = _job(
                    case,
                    arm,
                    (case.replayed_ranks[0],),
                    steps,
                    settings,
                    progress=arm == "loaded" and not sample,
                )
                # Arm `disk` is the second start: it gets the caches that this sample's arm `loaded`
                # has filled.
                cache = root / f"{sample}-{'loaded' if arm == 'disk' else arm}"
                try:
                    answer = run_process(job, cache, root)
                    answers[arm].append(msgspec.structs.replace(answer, process=sample + 1))
                except WorkerError as error:
                    usage = error.exit_code == UsageError.exit_code
                    if not answers["loaded"] and (arm == "loaded" or usage):
                        raise
                    failures.append(f"arm {arm} failed: {error}")
                    if arm == "loaded":
                        break  # its caches are not full, so there is no second start to measure
        ranks, plan = _other_ranks(case, settings, root, note, failures)
    return Measured(answers, ranks, plan, failures)


def plan_case(case: Case, settings: Settings) -> Answer:
    """Plan every rank of a case in a process of its own; nothing is compiled."""
    with _scratch() as scratch:
        job = _job(case, "plan", case.planned_ranks, 1, settings, progress=False)
        return run_process(job, Path(scratch) / "caches", Path(scratch))


def prove_case(
    case: Case, settings: Settings, key_seconds: dict[str, float]
) -> tuple[Answer, Answer]:
    """Prove every rank of a case in one process, and plan the ranks in reverse in another with
    another hash seed: keys that depend on order or process differ between the two.

    Raises the `WorkerError` of the first that has no answer.
    """
    steps = min(settings.steps_of(case), SHORT)
    prove = _job(case, "prove", case.planned_ranks, steps, settings, progress=False)
    plan = _job(case, "plan", case.planned_ranks[::-1], 1, settings, progress=False)
    first, second = hash_seeds(case)
    jobs = [
        msgspec.structs.replace(prove, hash_seed=first, key_seconds=key_seconds),
        msgspec.structs.replace(plan, hash_seed=second),
    ]
    with _scratch() as scratch:
        proved, planned = _run_all(jobs, Path(scratch) / "caches", Path(scratch))
    for answer in (proved, planned):
        if isinstance(answer, WorkerError):
            raise answer
    assert isinstance(proved, Answer) and isinstance(planned, Answer)  # noqa: PT018 - both are
    return proved, planned


def check_cases(
    cases: Sequence[Case],
    settings: Settings,
    steps: int,
    at_once: int,
    note: Callable[[str], None],
) -> list[tuple[Answer | WorkerError, Answer | WorkerError]]:
    """Plan every rank of each case twice, in processes that have another hash seed and another
    order of the ranks. The first replays the keys of rank 0, the second those of the other replayed
    ranks: at most `steps` steps, none for 0.

    Runs `at_once` processes side by side; `note` is told of each case that is done. Raises nothing
    for a process that failed.
    """
    jobs = []
    for case in cases:
        first, *others = case.replayed_ranks if steps else (-1,)
        one, another = hash_seeds(case)
        for seed, ranks, replayed in (
            (one, case.planned_ranks, (first,)),
            (another, case.planned_ranks[::-1], tuple(others)),
        ):
            job = _job(
                case, "check", ranks, min(steps, case.traffic.steps), settings, progress=False
            )
            jobs.append(msgspec.structs.replace(job, hash_seed=seed, replayed=replayed))
    left = Counter(job.case.title for job in jobs)
    lock = threading.Lock()

    def done(job: Job) -> None:
        with lock:
            left[job.case.title] -= 1
            if not left[job.case.title]:
                finished = sum(not count for count in left.values())
                note(f"{job.case.title}: planned ({finished} of {counted(len(left), 'case')})")

    with _scratch() as scratch:
        found = _run_all(jobs, Path(scratch) / "caches", Path(scratch), at_once, done)
    return list(zip(found[::2], found[1::2], strict=True))


def hash_seeds(case: Case) -> tuple[int, int]:
    """The seeds of Python's hashes under which a case is planned, always the same for this case.

    A choice between two values may be the same under both, so other cases have others: what one
    pair does not show, another does.
    """
    number = zlib.crc32(case.title.encode(errors="backslashreplace")) % 500
    return 2 * number + 1, 2 * number + 2


def warm_case(case: Case, settings: Settings) -> Answer:
    """Plan and warm rank 0 of a case in a process of its own, from empty caches, with one step of
    traffic behind it.
    """
    with _scratch() as scratch:
        job = _job(case, "loaded", (case.replayed_ranks[0],), 1, settings, progress=True)
        return run_process(job, Path(scratch) / "caches", Path(scratch))


def needed_keys(case: Case, settings: Settings, rank: int) -> Answer:
    """Replay the traffic with an empty plan and no compiler: exactly the backend keys that its
    launches ask for.
    """
    with _scratch() as scratch:
        job = _job(case, "cold", (rank,), settings.steps_of(case), settings, progress=False)
        return run_process(
            msgspec.structs.replace(job, replay_keys=True), Path(scratch) / "caches", Path(scratch)
        )


def run_process(job: Job, cache: Path, scratch: Path) -> Answer:
    """Run one job in a fresh interpreter whose cache folders are all below `cache`.

    Raises `ArmFailed` with the process's own error, or `WorkerError` if it died without a reply.
    """
    (outcome,) = _run_all([job], cache, scratch)
    if isinstance(outcome, WorkerError):
        raise outcome
    return outcome


class _Running:
    """The processes that run now. After `kill` no other starts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._killed = False

    def run(self, command: Sequence[str], environment: dict[str, str]) -> int:
        """Run a command to its end; returns its status."""
        with self._lock:
            if self._killed:
                raise WorkerError("not started: the run was stopped")
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=STDERR
            )
            self._processes.add(process)
        try:
            return process.wait()
        finally:
            with self._lock:
                self._processes.discard(process)

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            for process in self._processes:
                process.kill()


def _run_all(
    jobs: Sequence[Job],
    cache: Path,
    scratch: Path,
    at_once: int = SIDE_BY_SIDE,
    done: Callable[[Job], None] = lambda _: None,
) -> list[Answer | WorkerError]:
    """What became of each job, `at_once` processes side by side; `done` is told of each that ended.

    Processes are started and awaited by threads, which no signal interrupts. Whatever ends this
    function early, Ctrl-C above all, kills the processes and waits for them.
    """
    running = _Running()
    pool = ThreadPoolExecutor(at_once)
    try:
        futures = [pool.submit(_attempt, job, cache, scratch, running, done) for job in jobs]
        for future in wait(futures, return_when=FIRST_EXCEPTION).done:
            future.result()  # raises what a thread met that is no failure of its process
        return [future.result() for future in futures]
    except BaseException:
        running.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _attempt(
    job: Job, cache: Path, scratch: Path, running: _Running, done: Callable[[Job], None]
) -> Answer | WorkerError:
    try:
        with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as folder:
            job_path, reply_path = Path(folder) / "job.json", Path(folder) / "reply.json"
            atomic.write_bytes(job_path, msgspec.json.encode(job))
            # A killed process leaves its own scratch folders here, where they are removed.
            own = Path(folder) / "tmp"
            own.mkdir()
            environment = os.environ | caches.isolated(cache) | {"TMPDIR": str(own)}
            if job.hash_seed is not None:
                environment["PYTHONHASHSEED"] = str(job.hash_seed)
            status = running.run([*WORKER, str(job_path), str(reply_path)], environment)
            reply = read_reply(reply_path) if reply_path.exists() else Reply()
    except OSError as error:  # the disk is full, or the machine has no process left
        done(job)
        return WorkerError(f"{job.case.title}: no process of arm {job.arm}: {error}")
    done(job)
    if reply.failure is not None:
        return ArmFailed(
            f"{job.case.title}: {reply.failure.error}",
            reply.failure.trace,
            reply.failure.exit_code,
        )
    if reply.answer is None:
        return WorkerError(
            f"{job.case.title}: the process of arm {job.arm} ended with status {status} and no "
            "reply"
        )
    return reply.answer


def _scratch() -> tempfile.TemporaryDirectory[str]:
    try:
        # What cannot be removed must not cost a result.
        return tempfile.TemporaryDirectory(prefix="jitwarm-", ignore_cleanup_errors=True)
    except OSError as error:
        raise NotWrittenError(error.filename or "a scratch folder (TMPDIR)", error) from error


def _job(
    case: Case, arm: str, ranks: tuple[int, ...], steps: int, settings: Settings, *, progress: bool
) -> Job:
    # Arm `cold` exists to compile late: refusing it there would measure nothing.
    monitor = settings.monitor if arm in DEPTH else "record"
    return Job(case, arm, ranks, steps, settings.device, settings.threads, monitor, progress)


def _other_ranks(
    case: Case,
    settings: Settings,
    root: Path,
    note: Callable[[str], None],
    failures: list[str],
) -> tuple[list[Answer], Answer | None]:
    """Coverage of the other replayed ranks, and the plans of all ranks; what fails is added to
    `failures`.

    Counts only, so they may share a warm cache.
    """
    cache = root / "0-loaded"
    jobs = [
        _job(case, "loaded", (rank,), settings.steps_of(case), settings, progress=False)
        for rank in case.replayed_ranks[1:]
    ]
    if len(case.planned_ranks) > 1:
        jobs.append(_job(case, "plan", case.planned_ranks, 1, settings, progress=False))
    if jobs:
        others = ", ".join(str(rank) for rank in case.replayed_ranks[1:])
        note(
            f"{case.title}: coverage of ranks {others or '-'}, plans of "
            f"{counted(len(case.planned_ranks), 'rank')}"
        )
    ranks: list[Answer] = []
    plan: Answer | None = None
    for job, outcome in zip(jobs, _run_all(jobs, cache, root), strict=True):
        if isinstance(outcome, WorkerError):
            what = "plans of all ranks" if job.arm == "plan" else f"rank {job.ranks[0]}"
            failures.append(f"{what} failed: {outcome}")
        elif job.arm == "plan":
            plan = outcome
        else:
            ranks.append(outcome)
    return ranks, plan
