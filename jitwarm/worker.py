"""One measuring process: `python -m jitwarm.worker JOB.json REPLY.json`. Fresh interpreter, one
device, one arm.
"""

from __future__ import annotations

import time

_STARTED = time.perf_counter()

import contextlib
import inspect
import os
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from jitwarm import atomic, caches, threads
from jitwarm.commands.output import complain
from jitwarm.device import Device, activate
from jitwarm.errors import CompileRefused, JitwarmError, RunError
from jitwarm.gate.replay import ask_steps, replay_keys
from jitwarm.jobs import (
    DEPTH,
    Answer,
    Failure,
    Job,
    KeyOutcome,
    RankProof,
    RankReplay,
    Reply,
    StepTimes,
    Warmed,
    read_job,
)
from jitwarm.judge.coverage import Observed, digest
from jitwarm.model import Model, build
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import Plan, make_plan
from jitwarm.proof.model import prove_model
from jitwarm.proof.plan import ProofPlan
from jitwarm.proof.real_steps import switched_off, with_respelt, with_tunings
from jitwarm.record import DeviceRecord, FailedKey, RankPlan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.report.progress import show_progress
from jitwarm.traffic import Replay, replay
from jitwarm.versions import versions
from jitwarm.warm import WarmReport, warm


class Work(msgspec.Struct, frozen=True):
    """What a job did, as opposed to the process it did it in."""

    plans: tuple[RankPlan, ...] = ()
    proofs: tuple[RankProof, ...] = ()
    ranks: tuple[Warmed, ...] = ()
    replays: tuple[RankReplay, ...] = ()
    warmed: Warmed | None = None
    ready_s: float = 0.0
    times: StepTimes | None = None
    observed: Observed | None = None
    emits_token: bool = False


def run_job(job: Job) -> Answer:
    """Do one job in this process."""
    import torch
    import triton

    before = caches.count()
    device = activate(job.device, job.case.arch)
    import_s = time.perf_counter() - _STARTED
    do = {"plan": _plan_ranks, "prove": _prove_ranks, "check": _check_ranks}.get(
        job.arm, _replay_arm
    )
    work = do(job, device)
    after = caches.count()
    return Answer(
        arm=job.arm,
        device=DeviceRecord(device.kind, device.arch, device.name, device.driver),
        versions=versions(str(torch.version.cuda)) | {"triton": triton.__version__},
        caches={name: caches.CacheCount(before[name], after[name]) for name in before},
        import_s=import_s,
        peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        checks=_doubts(job, before),
        **msgspec.structs.asdict(work),
    )


def _plan_ranks(job: Job, device: Device) -> Work:
    plans, warmed = [], []
    for rank in job.ranks:
        model, registry = _build(job, rank, device)
        plan = make_plan(registry)
        backend_keys = plan.backend_keys
        plans.append(RankPlan(rank, len(plan.items), len(backend_keys), digest(backend_keys)))
        warmed.append(_warmed(model, plan, warm(plan, enabled=False)))
    return Work(plans=tuple(plans), warmed=_of_all(job.ranks, warmed), ranks=tuple(warmed))


def _of_all(ranks: Sequence[int], warmed: Sequence[Warmed]) -> Warmed:
    """The first rank's, with what failed and what was found of the plan on the others."""
    failed = [
        msgspec.structs.replace(failure, rank=rank)
        for rank, one in zip(ranks, warmed, strict=True)
        for failure in one.failed
    ]
    findings = list(warmed[0].findings)
    for one in warmed[1:]:
        # Not by the whole finding: registrations outside any scope are counted over the ranks.
        told = {(finding.kind, finding.kernel) for finding in findings}
        findings += [f for f in one.findings if (f.kind, f.kernel) not in told]
    return msgspec.structs.replace(warmed[0], failed=tuple(failed), findings=tuple(findings))


def _prove_ranks(job: Job, device: Device) -> Work:
    """Plans and proofs of all ranks, each held against `job.steps` real steps of null kernels."""
    plans, proofs, warmed = [], [], []
    traffic = replay(job.case, job.steps)
    for rank in job.ranks:
        model, registry = _build(job, rank, device)
        plan = make_plan(registry)
        plans.append(
            RankPlan(rank, len(plan.items), len(plan.backend_keys), digest(plan.backend_keys))
        )
        warmed.append(_warmed(model, plan, warm(plan, enabled=False)))
        asked = ask_steps(model, traffic.batches, rank, ProofPlan(plan))
        seconds = {i.backend_key: job.key_seconds.get(i.kernel, 0.0) for i in plan.items}
        proof = prove_model(model, plan, asked.launched, seconds=seconds)
        proof = with_respelt(with_tunings(proof, plan, asked.tunings), plan, asked.respelt)
        if not job.case.warmup.enable_jit_warmup:
            proof = switched_off(proof, plan)
        launches = sum(asked.launched.values())
        proofs.append(RankProof(rank, proof, len(traffic.batches), launches))
    warmed_all = _of_all(job.ranks, warmed)
    return Work(tuple(plans), proofs=tuple(proofs), warmed=warmed_all, ranks=tuple(warmed))


def _check_ranks(job: Job, device: Device) -> Work:
    """Plans of all ranks with all their keys; some of them also replay theirs."""
    plans, ranks, replays = [], [], []
    for rank in job.ranks:
        model, registry = _build(job, rank, device)
        plan = make_plan(registry)
        plans.append(
            RankPlan(rank, len(plan.items), len(plan.backend_keys), digest(plan.backend_keys))
        )
        ranks.append(_warmed(model, plan, warm(plan, enabled=False)))
        if rank in job.replayed:
            replays.append(replay_keys(job.case, rank, model, plan, job.steps))
    return Work(plans=tuple(plans), ranks=tuple(ranks), replays=tuple(replays))


def _replay_arm(job: Job, device: Device) -> Work:
    (rank,) = job.ranks
    model, registry = _build(job, rank, device)
    traffic = replay(job.case, job.steps)
    _set_up(model, device, traffic)
    monitor = Monitor(job.monitor, rank=rank, count_hits=True, null_kernels=job.replay_keys)
    # Before the monitor starts: in mode `error` that pays Triton's lazy imports, a part of warm-up.
    warmed, start = None, time.perf_counter()
    with monitor:
        if job.arm in DEPTH:
            plan = make_plan(registry)
            monitor.plan = plan  # refusals and warnings name the nearest warmed key
            report = warm(
                plan,
                jobs=job.threads,
                depth=DEPTH[job.arm],
                enabled=job.case.warmup.enable_jit_warmup,
                progress=show_progress(job.case, plan) if job.progress else None,
            )
            warmed = _warmed(model, plan, report)
        ready_s = time.perf_counter() - start if warmed else 0.0
        _set_up(model, device, traffic)
        _check_depth(job, monitor)
        monitor.begin_serving()
        times = _replay(model, device, monitor, traffic)
        observed = Observed(rank, job.steps, monitor.launches(), list(monitor.events))
    return Work(
        warmed=warmed,
        ready_s=ready_s,
        times=times,
        observed=observed,
        # On a stub nothing is computed, so nothing is emitted, whatever a model says.
        emits_token=device.kind == "cuda" and bool(getattr(model, "emits_token", False)),
    )


def _build(job: Job, rank: int, device: Device) -> tuple[Model, JitWarmupRegistry]:
    with _no_launch("the construction of the model"):
        return build(job.case, rank, device)


def _set_up(model: Model, device: Device, traffic: Replay) -> None:
    """Context, allocator, Triton's driver and every torch operator of a step; none of our kernels.

    Every arm does this before its clock starts, and again after its warm-up: seconds of compiling
    push torch and numpy out of the processor's caches (477 us for a fill of the buffers against
    100 us), which is no property of any arm.
    """
    import triton

    with _no_launch("set_up() of the model"):
        if device.kind == "cuda":
            triton.runtime.driver.active.utils  # noqa: B018 - its first use compiles Triton's C helper
        set_up: Any = getattr(model, "set_up", None)
        if set_up is not None:
            takes_batches = bool(inspect.signature(set_up).parameters)
            set_up(*([traffic.headline] if takes_batches else []))
        device.synchronize()


@contextlib.contextmanager
def _no_launch(where: str) -> Iterator[None]:
    """Nothing of ours may be compiled or launched in this block: it belongs to no arm's clock."""
    with Monitor("record", count_hits=True) as watch:
        yield
    kernels = [event.kernel for event in watch.events] + list(watch.launches())
    if kernels:
        path = kernels[0].partition("[")[0]
        raise RunError(f"{where} launched {path}: kernels are launched by step() only")


def _check_depth(job: Job, monitor: Monitor) -> None:
    if job.arm == "compiled" and monitor.count("load"):
        raise RunError(
            "arm compiled: a module was loaded before traffic, so the arm would not measure what "
            "it says"
        )


def _replay(model: Model, device: Device, monitor: Monitor, plan: Replay) -> StepTimes:
    spent: list[float] = []
    imported: list[int] = []
    for index, batch in enumerate(plan.batches):
        monitor.step = index
        modules = len(sys.modules)
        start = time.perf_counter()
        try:
            model.step(batch)
        except* CompileRefused:  # alone, or of a warm-up: an event; the rest of this step is lost
            pass
        device.synchronize()
        spent.append((time.perf_counter() - start) * 1e3)
        imported.append(max(0, len(sys.modules) - modules))
    threads.settle(monitor.seen)
    device.synchronize()
    launches = sum(monitor.launches().values())
    first_prefill, first_decode = plan.first_prefill, plan.first_decode
    return StepTimes(
        None if first_prefill is None else spent[first_prefill],
        None if first_decode is None else spent[first_decode],
        tuple(spent[i] for i in plan.later_prefill),
        tuple(spent[i] for i in plan.later_decode),
        -1 if first_prefill is None else first_prefill,
        sum(spent) * 1e3 / launches if launches else 0.0,
        (
            0 if first_prefill is None else imported[first_prefill],
            0 if first_decode is None else imported[first_decode],
        ),
    )


def _warmed(model: Model, plan: Plan, report: WarmReport) -> Warmed:
    failed = [FailedKey(kernel, "", _placed(error)) for kernel, error in plan.failures]
    failed += [FailedKey(o.item.kernel, o.item.backend_key, _text(o.error)) for o in report.failed]
    return Warmed(
        layers=model.layers,
        funnel=plan.funnel,
        rows=plan.rows,
        keys=tuple(plan.keys()),
        enumeration_s=plan.enumeration_s,
        seconds=report.seconds,
        cpu_seconds=report.cpu_seconds,
        threads=report.jobs,
        depth=report.depth,
        outcomes=tuple(
            KeyOutcome(o.item.backend_key, o.item.kernel, o.status, o.seconds, o.reason)
            for o in report.outcomes
        ),
        failed=tuple(failed),
        findings=plan.findings,
    )


def _text(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}".strip()


def _placed(error: Exception) -> str:
    """An error of a declaration; where it was raised too, if it is none of ours."""
    known = isinstance(error, JitwarmError) or error.__traceback__ is None
    return _text(error) if known else f"{_text(error)} ({_place(error)})"


def _place(error: Exception) -> str:
    """Where an unexpected error was raised: the innermost frame."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _doubts(job: Job, before: dict[str, int]) -> tuple[str, ...]:
    doubts = []
    full = {name: count for name, count in before.items() if count}
    if job.arm in ("cold", "loaded", "compiled") and full and not job.replay_keys:
        doubts.append(f"arm {job.arm}: caches were not empty at the start: {full}")
    if job.arm == "disk" and not full:
        doubts.append("arm disk: caches were empty at the start")
    if names := threads.names(threads.running()):
        doubts.append(f"arm {job.arm}: {threads.still_run(names)}; {threads.UNSEEN}")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        doubts.append(f"arm {job.arm}: load average {load:.1f} on {cores} cores at its end")
    return tuple(doubts)


def main(arguments: list[str]) -> int:
    """Read the job, do it, write the reply. The reply is written also when the job fails."""
    job_path, reply_path = map(Path, arguments)
    warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION is unset")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # A real interrupt ends this process at once, and the parent says so; a KeyboardInterrupt
        # below is one that a model raises.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        reply = msgspec.json.encode(Reply(answer=run_job(read_job(job_path))))
    except BaseException as error:  # the parent must learn of anything, a model's sys.exit() too
        if isinstance(error, JitwarmError):
            text, code = str(error), error.exit_code
        elif isinstance(error, Exception):
            text, code = f"{_text(error)} ({_place(error)})", RunError.exit_code
        else:
            stopped = RunError(f"the model raised {error!r}").with_traceback(error.__traceback__)
            text, code = f"{stopped} ({_place(stopped)})", RunError.exit_code
        # A message may hold half a character (a surrogate), which JSON cannot.
        text, trace = (
            one.encode(errors="backslashreplace").decode() for one in (text, traceback.format_exc())
        )
        reply = msgspec.json.encode(Reply(failure=Failure(text, trace, code)))
    atomic.write_bytes(reply_path, reply)
    return 0


def _end(status: int) -> NoReturn:
    """End this process, which has replied, whatever threads the model has left."""
    if not any(not one.daemon for one in threads.others()):
        sys.exit(status)
    # Python would wait for them, for ever if need be.
    if names := threads.names(one for one in threads.running() if not one.daemon):
        complain(f"{threads.still_run(names)}; ended with the process")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    _end(main(sys.argv[1:]))
