"""Warm: make every backend key of a plan ready to launch, and say of each what it took.

Deduplicated before the pool (Triton would compile one key four times from four threads), parallel
in threads where the compiler can (Triton's releases the interpreter lock: 1.9 times faster on 2
cores) and in forked children where a process compiles one key at a time (CuTe DSL), all keys tried
whatever happens to one.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import resource
import tempfile
import time
from collections.abc import Callable, Generator, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

from jitwarm import env, keys
from jitwarm.amounts import counted
from jitwarm.backends import Backend, ProcessBackend, backend_of, sinks
from jitwarm.errors import CompilerCrashed, RunError, UsageError
from jitwarm.observe import phases
from jitwarm.plan import Plan, PlanItem

DEPTHS = ("compiled", "loaded")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one backend key.

    `status` is `warmed`, `failed` (see `error`) or `skipped` (see `reason`, which may also hold a
    doubt about a key that is warmed): warm-up is off, or it is a configuration that an autotuner
    passes over. `seconds` is the time in its worker.
    """

    item: PlanItem
    status: str
    seconds: float
    error: Exception | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WarmReport:
    """A finished warm-up: wall and CPU seconds (children included), the depth reached, one outcome
    a backend key in plan order.
    """

    seconds: float
    cpu_seconds: float
    jobs: int
    depth: str
    outcomes: tuple[Outcome, ...]
    enumeration_failures: tuple[tuple[str, Exception], ...]

    @classmethod
    def of_nothing(cls) -> Self:
        """The report of a warm-up that came to no key."""
        return cls(0.0, 0.0, 1, "loaded", (), ())

    @property
    def warmed(self) -> int:
        """How many backend keys are ready."""
        return sum(outcome.status == "warmed" for outcome in self.outcomes)

    @property
    def failed(self) -> list[Outcome]:
        """The keys that could not be made ready."""
        return [outcome for outcome in self.outcomes if outcome.status == "failed"]

    def raise_failures(self) -> None:
        """Raise an ExceptionGroup with every failure, each noted with its kernel and key; nothing
        if there is none.
        """
        errors: list[Exception] = []
        for kernel, error in self.enumeration_failures:
            _note(error, f"while enumerating the keys of {kernel}")
            errors.append(error)
        for outcome in self.failed:
            assert outcome.error is not None  # a failed outcome always has one
            _note(outcome.error, f"while warming {outcome.item.declared} [{outcome.item.id}]")
            errors.append(outcome.error)
        if errors:
            many = counted(len(errors), "kernel or key", "kernels or keys")
            raise ExceptionGroup(f"jitwarm: {many} could not be warmed", errors)


def _note(error: Exception, text: str) -> None:
    """Add a note once, however often the report is raised."""
    if text not in getattr(error, "__notes__", ()):
        error.add_note(text)


Progress = Callable[[int, int, PlanItem, float], None]


def warm(
    plan: Plan,
    *,
    jobs: int | None = None,
    depth: str = "loaded",
    enabled: bool = True,
    progress: Progress | None = None,
) -> WarmReport:
    """Make every backend key of `plan` ready on the current device.

    `jobs` compiles at a time (default: JITWARM_JOBS, else one a core); `depth` `compiled` leaves
    the module load to the first launch, `loaded` does not. With `enabled=False` nothing compiles
    and every key is `skipped`. `progress(done, total, item, seconds)` is called in this thread
    after each key. Never raises for a key that fails, nor for a compiler that is broken: see
    `WarmReport.raise_failures`.
    """
    check_options(jobs=jobs, depth=depth)
    jobs = jobs or env.jobs() or os.cpu_count() or 1
    units = [_Unit(items[0], spellings(items)) for items in plan.by_backend_key.values()]
    start, cpu = time.perf_counter(), _cpu_seconds()
    if enabled:
        outcomes = _warm_all(units, jobs, depth, progress)
    else:
        reason = "warm-up is switched off"
        outcomes = [Outcome(unit.item, "skipped", 0.0, reason=reason) for unit in units]
    return WarmReport(
        time.perf_counter() - start,
        _cpu_seconds() - cpu,
        jobs,
        depth,
        tuple(outcomes),
        plan.failures if enabled else (),
    )


def check_options(*, jobs: int | None = None, depth: str = "loaded", **_: Any) -> None:
    """Raise `UsageError` for options that `warm` refuses."""
    if depth not in DEPTHS:
        raise UsageError(f"unknown warm-up depth {depth!r}: use {' or '.join(DEPTHS)}")
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs={jobs}: at least one thread has to compile")


def _cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


@dataclass(frozen=True, slots=True)
class _Unit:
    """One backend key, and a recipe for each way in which launches spell its options.

    Triton's in-process key holds the options as written: another spelling of a binary that is
    there already is fetched from disk once more (1 to 6 ms), at start-up rather than later.
    """

    item: PlanItem
    recipes: tuple[Any, ...]


def spellings(items: Iterable[PlanItem]) -> tuple[Any, ...]:
    """Of items of one backend key the recipes that warm-up makes ready: one for each way in which
    launches spell its options.
    """
    spelt: dict[Hashable, Any] = {}
    for item in items:
        spelt.setdefault(keys.exact(getattr(item.recipe, "options", ())), item.recipe)
    return tuple(spelt.values())


def _warm_all(
    units: list[_Unit], jobs: int, depth: str, progress: Progress | None
) -> list[Outcome]:
    backends: dict[str, tuple[Backend, list[_Unit]]] = {}
    for unit in units:
        backend = backend_of(unit.item.recipe)
        backends.setdefault(backend.name, (backend, []))[1].append(unit)
    outcomes: dict[str, Outcome] = {}
    start = time.perf_counter()

    def done(outcome: Outcome) -> None:
        outcomes[outcome.item.backend_key] = outcome
        if progress is not None:
            progress(len(outcomes), len(units), outcome.item, time.perf_counter() - start)

    with phases.phase("warm"):
        # A kernel's own compile is not parallel, and finds in memory what the others made.
        last = sorted(backends.values(), key=lambda entry: entry[0].name == "opaque")
        for backend, own in last:
            try:
                backend.prepare(recipe for unit in own for recipe in unit.recipes)
            except Exception as error:  # a broken library must not cost other backends their keys
                for unit in own:
                    failure = _unprepared(backend, unit.item, error)
                    done(Outcome(unit.item, "failed", 0.0, error=failure))
                continue
            parallel = backend.parallel if jobs > 1 and len(own) > 1 else ""
            if parallel == "threads":
                _warm_in_pool(backend, own, jobs, depth, done)
            # After start-up each compile is one that a sink may refuse, which children do not ask.
            elif parallel == "processes" and hasattr(os, "fork") and not sinks.serving():
                _warm_in_children(cast("ProcessBackend", backend), own, jobs, depth, done)
            else:
                for unit in own:
                    done(_warm_one(backend, unit, depth))
    return [outcomes[unit.item.backend_key] for unit in units]


def _unprepared(backend: Backend, item: PlanItem, error: Exception) -> RunError:
    """Each key has an error of its own, which leads to the one that they share."""
    failure = RunError(
        f"{item.declared or item.backend_key}: the backend {backend.name} cannot compile here: "
        f"{type(error).__name__}: {error}; mend its compiler's installation, or remove it"
    )
    failure.__cause__ = error
    return failure


def _warm_in_pool(
    backend: Backend, units: list[_Unit], jobs: int, depth: str, done: Callable[[Outcome], None]
) -> None:
    pool = ThreadPoolExecutor(min(jobs, len(units)), "jitwarm", backend.enter_worker)
    try:
        # Each task gets a copy of this context: the phase must be "warm" in the pool's threads too.
        futures = [
            pool.submit(contextvars.copy_context().run, _warm_one, backend, unit, depth)
            for unit in units
        ]
        for future in as_completed(futures):
            done(future.result())
    finally:
        pool.shutdown(cancel_futures=True)  # on Ctrl-C the keys that have not begun are left


def _warm_in_children(
    backend: ProcessBackend,
    units: list[_Unit],
    jobs: int,
    depth: str,
    done: Callable[[Outcome], None],
) -> None:
    """Compile each key in a forked child and take its binary over; what no child handed over is
    compiled here, so that its error has its own traceback.
    """
    from jitwarm.backends.cutedsl.children import Unserved

    far = [unit for unit in units if _worth_a_child(backend, unit)]
    if len(far) == 1:  # a child would only add the price of a fork
        far = []
    finished: set[str] = set()
    with contextlib.closing(_from_children(backend, far, jobs)) as results:
        for unit, result in results:
            if not isinstance(result, Unserved):
                outcome = _take_over(backend, unit, result, depth)
            elif result.crashed:
                outcome = Outcome(unit.item, "failed", 0.0, error=_crash(unit.item, result))
            else:
                outcome = None
            if outcome is not None:
                finished.add(unit.item.backend_key)
                done(outcome)
    for unit in units:
        if unit.item.backend_key not in finished:
            done(_warm_one(backend, unit, depth))


def _worth_a_child(backend: ProcessBackend, unit: _Unit) -> bool:
    worth: Any = getattr(backend, "worth_a_child", bool)  # without it every key is
    try:
        return all(map(worth, unit.recipes))
    except Exception:  # whatever is wrong with the key, a compile in this process tells it better
        return False


def _from_children(
    backend: ProcessBackend, units: list[_Unit], jobs: int
) -> Generator[tuple[_Unit, Any]]:
    """Each unit that a child ended with, and what became of it; their files exist until the next.

    Ends early where this machine has no process, no file or no room left for another child.
    """
    from jitwarm.backends.cutedsl.children import compile_in_children

    tasks = [unit.recipes for unit in units]
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix="jitwarm-") as folder:
        results = compile_in_children(backend, tasks, min(jobs, len(units)), Path(folder))
        with contextlib.closing(results):
            for number, result in results:
                yield units[number], result


def _take_over(backend: ProcessBackend, unit: _Unit, handed: Any, depth: str) -> Outcome | None:
    """Make what a child compiled this process's own. None where it cannot be read back."""
    start = time.perf_counter()
    try:
        artefacts = [
            backend.adopt(recipe, path)
            for recipe, path in zip(unit.recipes, handed.paths, strict=True)
        ]
    except Exception:  # whatever is wrong with the file, a compile in this process tells it better
        return None
    for miss in handed.misses:
        sinks.compiled(miss)
    return _loaded(backend, unit, artefacts, depth, start - handed.seconds)


def _crash(item: PlanItem, result: Any) -> CompilerCrashed:
    return CompilerCrashed(
        f"{item.declared or item.backend_key}: the compiler crashed twice ({result.crashed}), each "
        "time in a child process; this process was spared: exclude the key, or compile it alone to "
        "see what is wrong"
    )


def _warm_one(backend: Backend, unit: _Unit, depth: str) -> Outcome:
    start = time.perf_counter()
    try:
        artefacts = [backend.compile(recipe) for recipe in unit.recipes]
    except Exception as error:  # collected: start-up survives one bad key
        return Outcome(unit.item, "failed", time.perf_counter() - start, error=error)
    return _loaded(backend, unit, artefacts, depth, start)


def _loaded(
    backend: Backend, unit: _Unit, artefacts: list[Any], depth: str, start: float
) -> Outcome:
    """The outcome of a key whose artefacts are compiled, after their load where it is asked for.

    An artefact with a `problem` cannot be used, and nobody will ask for it: that is no failure.
    """
    doubts: list[str] = []
    try:
        if depth == "loaded":
            doubts = [doubt for artefact in artefacts if (doubt := backend.load(artefact))]
    except Exception as error:  # as above
        return Outcome(unit.item, "failed", time.perf_counter() - start, error=error)
    problems = [problem for one in artefacts if (problem := getattr(one, "problem", ""))]
    reason = "; ".join(dict.fromkeys(problems or doubts))
    status = "skipped" if problems else "warmed"
    return Outcome(unit.item, status, time.perf_counter() - start, reason=reason)
