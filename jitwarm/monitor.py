"""Observe: every compile, disk hit, load and tuning of this process as a typed event.

In mode `error` a late compile or disk read is refused before it happens. Loads, tunings and traces
that find their binary in memory are told, in every mode, and refused in none; the compiles inside
of a tuning are compiles.

What is covered, in every thread: kernels launched through Triton's JIT runtime, Gluon kernels
included; every compile of CuTe DSL, flash-attention 4 included, wherever and whenever the library
is imported. What is not covered: `triton.compile` called directly (Inductor), other compilers, work
done before the monitor was started. Launches are counted for Triton's kernels and for those that
our own classes launch.
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from types import FrameType, TracebackType
from typing import Any, Self

from jitwarm import keys, phases
from jitwarm.backends import launches, sinks
from jitwarm.backends.miss import Miss
from jitwarm.backends.triton import hits, hooks
from jitwarm.backends.triton.stub import NullKernel
from jitwarm.errors import CompileRefused, UsageError
from jitwarm.events import Event, Kind

MODES = ("off", "warn", "error", "record")


class LateCompileWarning(RuntimeWarning):
    """A kernel was compiled, or read from disk, while serving."""


class Monitor:
    """Watches this process from `start` to `stop`; also a context manager. Several may watch at
    once.

    Modes: `off` watches nothing; `record` keeps events; `warn` also warns of each in-process miss
    (a compile or a disk read) and each tuning while serving; `error` refuses the miss with
    `CompileRefused` before the disk cache or the compiler is asked, each time it is tried. Hooks
    that others set on a compiler keep firing. `rank` goes into the events.
    """

    def __init__(
        self,
        mode: str = "warn",
        *,
        rank: int = 0,
        count_hits: bool = False,
        null_kernels: bool = False,
    ) -> None:
        """`count_hits` counts launches served from memory (no hook of Triton reports them), at a
        cost a launch.

        `null_kernels` serves each miss while serving with a kernel that does nothing, without
        compiling: a key replay.
        """
        if mode not in MODES:
            raise UsageError(f"unknown monitor mode {mode!r}: use one of {', '.join(MODES)}")
        self.mode, self.rank, self.count_hits = mode, rank, count_hits
        self.null_kernels = null_kernels
        self.events: list[Event] = []
        self.step = -1
        self.request = ""
        self._before: Counter[hits.LookUp] = Counter()
        self._launched: Counter[str] = Counter()
        self._counted: dict[str, int] = {}
        self._attached = False

    def start(self) -> Self:
        """Begin to watch.

        In mode `error` this also pays Triton's lazy imports, so that a refusal costs microseconds.
        """
        if self.mode != "off" and not self._attached:
            if self.mode == "error":
                hooks.prepay()  # before anything is attached: it fails where there is no device
            sinks.attach(self)
            self._attached = True
            if self.count_hits:
                hits.start_counting()
                launches.start_counting()
                self.begin_serving()
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
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def begin_serving(self) -> None:
        """Start-up is over: `launches` counts from here. Warm-ups look keys up too."""
        if self._attached:
            sinks.refresh()
        if self.count_hits:
            self._before = hits.look_ups()
            self._launched = Counter(launches.counts())

    def launches(self) -> dict[str, int]:
        """Launches since `begin_serving` (or `start`) by canonical key, misses included.

        Empty without `count_hits`; after `stop` the launches up to then.
        """
        return self._since() if self._attached and self.count_hits else dict(self._counted)

    def _since(self) -> dict[str, int]:
        found = Counter(launches.counts()) - self._launched
        found.update(hits.by_key(hits.look_ups() - self._before))
        return dict(sorted(found.items()))

    def count(self, *kinds: str, phase: str | None = None) -> int:
        """How many events of these kinds (all kinds by default), in one phase or in any."""
        return sum(
            (not kinds or e.kind in kinds) and (phase is None or e.phase == phase)
            for e in self.events
        )

    def on_miss(self, miss: Miss) -> Any:
        """Called by the hooks before a miss is served."""
        if phases.current_phase() == "warm":
            return None
        if self.null_kernels:
            return NullKernel()
        if self.mode == "error":
            when = f" in step {self.step}" if self.step >= 0 else ""
            raise CompileRefused(
                f"a launch{when} needs {miss.text} [{keys.key_id(miss.text)}], which was not "
                "warmed; add it to the kernel's declaration, or let it compile: Monitor('warn'), "
                "on the command line --monitor warn"
            )
        return None

    def on_refused(self, miss: Miss) -> None:
        """Called by the hooks after any monitor refused a miss."""
        self._add("refused", miss.kernel, miss.text, 0.0, {})

    def on_compiled(self, miss: Miss) -> None:
        """Called by the hooks after a miss was served."""
        self._add(miss.kind or "failed", miss.kernel, miss.text, miss.ms, miss.stages)
        self._warn(miss.kind or "failed", miss.text, miss.ms)

    def on_loaded(self, kernel: str, text: str, ms: float) -> None:
        """Called by the hooks after a load."""
        self._add("load", kernel, text, ms, {})

    def on_tuned(self, kernel: str, text: str, ms: float) -> None:
        """Called after a tuning."""
        self._add("tune", kernel, text, ms, {})
        self._warn("tune", text, ms)

    def _warn(self, kind: Kind, text: str, ms: float) -> None:
        """In mode `warn`, say that a request waited."""
        if self.mode != "warn" or phases.current_phase() == "warm":
            return
        frame = _caller()
        warnings.warn_explicit(
            f"{kind} while serving ({ms:.1f} ms, step {self.step}): {text} was not warmed",
            LateCompileWarning,
            frame.f_code.co_filename if frame else "",
            frame.f_lineno if frame else 1,
        )

    def _add(self, kind: Kind, kernel: str, text: str, ms: float, stages: dict[str, float]) -> None:
        self.events.append(
            Event(
                kind,
                kernel,
                text,
                keys.key_id(text),
                ms,
                stages,
                phases.current_phase(),
                self.step,
                self.request,
                self.rank,
                _call_site(),
            )
        )


def _caller() -> FrameType | None:
    """The innermost frame outside the compilers and jitwarm's own machinery: who launched."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_MACHINERY):
        frame = frame.f_back
    return frame


def _call_site() -> str:
    """`module.function:line` of the caller."""
    frame = _caller()
    if frame is None:
        return ""
    return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}:{frame.f_lineno}"


_MACHINERY = (
    "triton.",
    "cutlass.",
    "tvm_ffi.",
    "jitwarm.backends.",
    "jitwarm.monitor",
    "jitwarm.warm",
    "jitwarm.contract.",
    "concurrent.futures",
    "threading",
    "contextlib",
)
