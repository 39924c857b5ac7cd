"""Observe: every compile, disk hit, load and tuning of this process as a typed event.

In mode `error` a late compile, disk read or tuning is refused before it happens. Loads, and traces
that find their binary in memory, are told, in every mode, and refused in none. Late is what happens
outside of a warm-up, and, from `begin_serving` on, what happens in one, too.

What is covered, in every thread: kernels launched through Triton's JIT runtime, Gluon kernels
included; every compile of CuTe DSL, flash-attention 4 included, wherever and whenever the library
is imported. What is not covered: `triton.compile` called directly (Inductor), other compilers
(`Monitor.blind_spots` names those of this process), work done before the monitor was started,
and other processes: in a forked child a copy goes on, whose events stay there.
Launches are counted for Triton's kernels and for those that our own classes launch.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

from jitwarm import keys
from jitwarm.backends import launches, sinks
from jitwarm.backends.miss import Miss
from jitwarm.backends.triton import hits, hooks, tuning
from jitwarm.backends.triton.in_memory import keys_in_memory
from jitwarm.backends.triton.stub import NullKernel
from jitwarm.errors import CompileRefused, UsageError
from jitwarm.findings import Finding
from jitwarm.judge.events import judge
from jitwarm.judge.planned import Plannable, Planned, path_of
from jitwarm.observe import callsite, phases
from jitwarm.observe.blind_spots import BlindSpot, blind_spots
from jitwarm.observe.events import KINDS, Event, Kind

MODES = ("off", "warn", "error", "record")

# Step and request of this context, where `Monitor.at` gave them. They belong to the work, not to
# one monitor: each of several tells the same.
_at: ContextVar[tuple[int | None, str | None]] = ContextVar("jitwarm_at", default=(None, None))

_TO_ALLOW = "Monitor('warn'), on the command line --monitor warn"


class LateCompileWarning(RuntimeWarning):
    """A kernel was compiled, or read from disk, while serving."""


class Monitor:
    """Watches this process from `start` to `stop`; also a context manager, which may be entered
    again inside of itself. Several may watch at once.

    Modes: `off` watches nothing; `record` keeps events; `warn` also warns of each in-process miss
    (a compile or a disk read) and each tuning while serving; `error` refuses both with
    `CompileRefused` before the disk cache or the compiler is asked, each time it is tried. Hooks
    that others set on a compiler keep firing. `rank` goes into the events, as do `step` and
    `request`: two attributes, or `at` where several threads serve.
    """

    def __init__(
        self,
        mode: str = "warn",
        *,
        rank: int = 0,
        count_hits: bool = False,
        null_kernels: bool = False,
        plan: Plannable = None,
        prepay: bool = True,
        to_allow: str = _TO_ALLOW,
    ) -> None:
        """`count_hits` counts launches served from memory (no hook of Triton reports them), at a
        cost a launch.

        `null_kernels` serves each miss while serving with a kernel that does nothing, without
        compiling: a key replay.

        `plan` is what was warmed (a `Plan`, `PlanKey`s or backend keys), for the words of refusals
        and warnings; it may be set later, as `monitor.plan = plan`. `prepay=False` leaves the cost
        of a first refusal (Triton's lazy imports) to that refusal, where there is no device yet.
        `to_allow` is what a refusal tells to use instead to let the launch compile.
        """
        if mode not in MODES:
            raise UsageError(f"unknown monitor mode {mode!r}: use one of {', '.join(MODES)}")
        self.mode, self.rank, self.count_hits = mode, rank, count_hits
        self.null_kernels, self.prepay = null_kernels, prepay
        self.to_allow = to_allow
        self.events: list[Event] = []
        self._step, self._request = -1, ""
        self._plan, self._planned = plan, Planned.of(plan)
        self._before: Counter[hits.LookUp] = Counter()
        self._launched: Counter[str] = Counter()
        self._counted: dict[str, int] = {}
        self._attached = False
        self._entered = 0
        self.serving = False

    def start(self) -> Self:
        """Begin to watch.

        In mode `error` this also pays Triton's lazy imports, so that a refusal costs microseconds:
        it raises `DeviceError` where no device is active. Raises `HookPointMissing` if a compiler
        that is imported here cannot be watched.
        """
        if self.mode != "off" and not self._attached:
            if self.mode == "error" and self.prepay:
                hooks.prepay()  # before anything is attached: it fails where there is no device
                self._planned.prepay()
            self.serving = False
            sinks.attach(self)
            self._attached = True
            if self.count_hits:
                hits.start_counting()
                launches.start_counting()
                self._count_from_here()
        return self

    def stop(self) -> None:
        """Stop watching; events stay readable."""
        if self._attached:
            sinks.detach(self)
            self._attached = False
            if self.count_hits:
                self._counted = self._since()
                hits.stop_counting()
                launches.stop_counting()

    def __enter__(self) -> Self:
        """Start, unless it is started already."""
        self.start()
        self._entered += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, at the end of the outermost block."""
        self._entered -= 1
        if not self._entered:
            self.stop()

    @property
    def step(self) -> int:
        """Which step of traffic this thread works on: -1 before the first. Setting it sets that of
        all threads that are in no block of `at`.
        """
        step = _at.get()[0]
        return self._step if step is None else step

    @step.setter
    def step(self, step: int) -> None:
        self._step = step

    @property
    def request(self) -> str:
        """Which request this thread works on, as `step`."""
        request = _at.get()[1]
        return self._request if request is None else request

    @request.setter
    def request(self, request: str) -> None:
        self._request = request

    @contextmanager
    def at(self, *, step: int | None = None, request: str | None = None) -> Iterator[None]:
        """Work of this step and request, in this thread (or task) only; what is not given stays."""
        outer = _at.get()
        inner = (
            outer[0] if step is None else step,
            outer[1] if request is None else request,
        )
        _at.set(inner)
        try:
            yield
        finally:
            # An async generator may be closed by another task, where a token of this one is not
            # valid, and whose own block (another tuple) must stay as it is.
            if _at.get() is inner:
                _at.set(outer)

    @contextmanager
    def capture(self) -> Iterator[None]:
        """A graph is recorded in this block: events in it have the phase `capture`.

        A recording of this thread's CUDA stream is noticed without it.
        """
        with phases.phase("capture"):
            yield

    @property
    def plan(self) -> Plannable:
        """What was warmed, as it was given."""
        return self._plan

    @plan.setter
    def plan(self, plan: Plannable) -> None:
        planned = Planned.of(plan)
        if self.mode == "error" and self.prepay:
            planned.prepay()
        self._plan, self._planned = plan, planned

    @property
    def blind_spots(self) -> tuple[BlindSpot, ...]:
        """The compilers of this process that no monitor sees: those that are imported, first, and
        those that are installed.
        """
        return blind_spots()

    def findings(self, *, enabled: bool = True) -> tuple[Finding, ...]:
        """What `judge` says of the events so far, against the plan that this monitor knows."""
        return judge(self.events, self._planned, enabled=enabled)

    def begin_serving(self) -> None:
        """Start-up is over: `launches` counts from here, and a warm-up from here on is late, like
        all that it compiles, reads or tunes. Holds until the next `start` after a `stop`.
        """
        self.serving = True
        if self._attached:
            sinks.refresh()
            self._count_from_here()

    def _count_from_here(self) -> None:
        if self.count_hits:
            self._before = hits.look_ups()
            self._launched = Counter(launches.counts())

    def launches(self) -> dict[str, int]:
        """Launches since `begin_serving` (or `start`) by canonical key, misses included; what a
        warm-up looks up is no launch.

        Empty without `count_hits`; after `stop` the launches up to then.
        """
        return self._since() if self._attached and self.count_hits else dict(self._counted)

    def _since(self) -> dict[str, int]:
        found = Counter(launches.counts()) - self._launched
        found.update(hits.by_key(hits.look_ups() - self._before))
        return dict(sorted(found.items()))

    def seen(self) -> int:
        """How many launches and events there are so far."""
        return sum(self.launches().values()) + len(self.events)

    def count(self, *kinds: str, phase: str | None = None) -> int:
        """How many events of these kinds (all kinds by default), in one phase or in any.

        Raises `UsageError` for a kind that there is not: its count would be 0 whatever happened.
        """
        for kind in kinds:
            if kind not in KINDS:
                raise UsageError(f"no event is of kind {kind!r}: use {', '.join(KINDS)}")
        return sum(
            (not kinds or e.kind in kinds) and (phase is None or e.phase == phase)
            for e in self.events
        )

    def on_miss(self, miss: Miss) -> Any:
        """Called by the hooks before a miss is served."""
        if self.mode != "error" and not self.null_kernels:
            return None
        if not self.serving and phases.phase_of_event() == "warm":
            return None
        if self.null_kernels:
            return NullKernel()  # a tuning goes on with those, and is forgotten with them
        raise self._refusal(miss)

    def _refusal(self, miss: Miss) -> CompileRefused:
        when = f" in step {self.step}" if self.step >= 0 else ""
        finding = self._explained(miss)
        why, what = "", "add it to the kernel's declaration"
        if finding is not None:
            why, what = f": {finding.message}", finding.advice
        need, let = f"needs {miss.text}", "let it compile"
        if miss.kind == "tune":
            need, let = f"has to choose a configuration, {miss.text}", "let it choose"
        who = "a warm-up" if phases.phase_of_event() == "warm" else "a launch"
        refused = CompileRefused(
            f"{who}{when} {need} [{keys.key_id(miss.text)}], which was not "
            f"warmed{why}; {what}, or {let}: {self.to_allow}"
        )
        refused.finding = finding
        return refused

    def _explained(self, miss: Miss) -> Finding | None:
        """Why a key is missed: against the plan, else against what Triton has in memory."""
        event = self._of_miss("refused", miss)
        if miss.kind == "tune":
            return judge((event,), self._planned)[0]
        planned = self._planned or Planned(keys_in_memory(path_of(miss.text)))
        if not planned and event.phase != "warm":
            return None
        return planned.explain(miss.text, event=event)

    def on_refused(self, miss: Miss) -> None:
        """Called by the hooks after any monitor refused a miss."""
        self.events.append(self._of_miss("refused", miss))

    def on_compiled(self, miss: Miss) -> None:
        """Called by the hooks after a miss was served."""
        self._tell(self._of_miss(miss.kind or "failed", miss, miss.ms))

    def on_loaded(self, kernel: str, text: str, ms: float) -> None:
        """Called by the hooks after a load."""
        self.events.append(self._event("load", kernel, text, ms))

    def on_tuned(self, kernel: str, text: str, ms: float, configs: int = 0) -> None:
        """Called after a tuning."""
        self._tell(self._event("tune", kernel, text, ms, configs=configs))

    def _tell(self, event: Event) -> None:
        """Keep an event; in mode `warn`, say that a request waited."""
        self.events.append(event)
        if self.mode != "warn" or not event.late:
            return
        text = f"{event.key} was not warmed"
        if self._planned:
            finding = judge((event,), self._planned)[0]
            text = f"{finding.message}; {finding.advice} [{event.key}]"
        when = f", step {event.step}" if event.step >= 0 else ""
        frame = callsite.caller()
        warnings.warn_explicit(
            f"{event.kind} while serving ({event.ms:.1f} ms{when}): {text}",
            LateCompileWarning,
            frame.f_code.co_filename if frame else "",
            frame.f_lineno if frame else 1,
        )

    def _of_miss(self, kind: Kind, miss: Miss, ms: float = 0.0) -> Event:
        stages = {} if kind == "refused" else miss.stages
        return self._event(kind, miss.kernel, miss.text, ms, stages=stages, values=miss.values)

    def _event(self, kind: Kind, kernel: str, text: str, ms: float, **more: Any) -> Event:
        frame = callsite.caller()
        return Event(
            kind,
            kernel,
            text,
            keys.key_id(text),
            ms,
            more.pop("stages", {}),
            phases.phase_of_event(),
            self.step,
            self.request,
            self.rank,
            site=callsite.site(frame),
            place=callsite.place(frame),
            in_tuning=tuning.under_way(),
            serving=self.serving,
            **more,
        )
