"""The whole warm-up of an engine's start-up, in one call that logs what it does.

Registered kernels first, then the registered CuTe DSL compile units, then the engine's own warm-up
functions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from jitwarm.amounts import counted
from jitwarm.contract.compile_units import UnitsReport, compile_registered_units
from jitwarm.errors import RegistrationError, UsageError
from jitwarm.plan import PlanItem, make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.warm import WarmReport, check_options, warm

PROGRESS_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class StartUpReport:
    """A finished start-up: what the registry's warm-up did (`warm`), the compile units, and every
    error in the order in which they happened.

    `enabled` is the configuration's switch; with it off, every key of `warm` is `skipped` and no
    unit is tried. `legacy` are the names and seconds of the functions that were called.
    """

    enabled: bool
    seconds: float
    warm: WarmReport
    units: UnitsReport
    legacy: tuple[tuple[str, float], ...]
    errors: tuple[Exception, ...]

    @property
    def warmed(self) -> int:
        """How many backend keys and compile units are ready."""
        return self.warm.warmed + sum(one.error is None for one in self.units.outcomes)


def kernel_warmup(
    worker_or_registry: Any,
    *,
    config: Any = None,
    on_error: Literal["raise", "collect"] = "raise",
    log: logging.Logger | None = None,
    legacy: Iterable[Callable[[], Any]] = (),
    **options: Any,
) -> StartUpReport:
    """Warm everything that was registered while the model was built. Call it once, before traffic.

    `worker_or_registry` is a registry, or an object that has one as `jit_warmup_registry` (itself
    or its `model_runner`). `config` (default: the registry's) may switch warm-up off with
    `kernel_config.enable_jit_warmup`; the `legacy` functions, hand-written warm-ups, run all the
    same, last. `options` go to `jitwarm.warm.warm` (jobs, depth, ...).

    Everything is tried, whatever happens to one of them. Then, if anything failed, an
    ExceptionGroup of all failures is raised; with `on_error="collect"` they are in the report
    instead. Start, progress and end are logged to `log` (default: the logger `jitwarm`). Before
    anything is tried this raises `RegistrationError` where there is no registry, and `UsageError`
    for options that cannot be.
    """
    if on_error not in ("raise", "collect"):
        raise UsageError(f"unknown on_error {on_error!r}: use raise or collect")
    check_options(**options)
    log = log or logging.getLogger("jitwarm")
    registry = _registry_of(worker_or_registry)
    settings = getattr(config if config is not None else registry.config, "kernel_config", None)
    enabled = bool(options.pop("enabled", getattr(settings, "enable_jit_warmup", True)))
    start = time.perf_counter()
    try:
        report = _run(registry, enabled, log, tuple(legacy), options, start)
    except BaseException:
        seconds = time.perf_counter() - start
        log.error("kernel warm-up ended early after %.1f s", seconds)  # noqa: TRY400 - it is raised
        raise
    if report.errors:
        count = len(report.errors)
        log.error("kernel warm-up: %d failures after %.1f s", count, report.seconds)
        for error in report.errors:
            log.error("%s: %s", type(error).__name__, "; ".join(_lines(error)))
        if on_error == "raise":
            many = counted(count, "kernel or key", "kernels or keys")
            raise ExceptionGroup(f"jitwarm: {many} could not be warmed", list(report.errors))
    else:
        log.info("kernel warm-up: %d keys and units ready in %.1f s", report.warmed, report.seconds)
    return report


def _run(
    registry: JitWarmupRegistry,
    enabled: bool,
    log: logging.Logger,
    legacy: tuple[Callable[[], Any], ...],
    options: dict[str, Any],
    start: float,
) -> StartUpReport:
    errors: list[Exception] = []
    warmed = WarmReport.of_nothing()
    try:
        warmed = _warmed(registry, enabled, log, options)
        warmed.raise_failures()
    except ExceptionGroup as group:
        errors += group.exceptions
    except Exception as error:  # everything is tried
        error.add_note("while warming the registered kernels")
        errors.append(error)
    units = UnitsReport()
    try:
        units = compile_registered_units() if enabled else units
    except Exception as error:  # as above
        error.add_note("while compiling the CuTe DSL compile units")
        errors.append(error)
    errors += units.errors
    if units.skipped:
        log.warning("%d CuTe DSL compile units skipped: %s", units.found, units.skipped)
    called = []
    for function in legacy:
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        begin = time.perf_counter()
        try:
            function()
        except Exception as error:  # as above
            error.add_note(f"while calling {name}")
            errors.append(error)
        called.append((name, time.perf_counter() - begin))
    seconds = time.perf_counter() - start
    return StartUpReport(enabled, seconds, warmed, units, tuple(called), tuple(errors))


def _warmed(
    registry: JitWarmupRegistry, enabled: bool, log: logging.Logger, options: dict[str, Any]
) -> WarmReport:
    """Plan and warm what is registered."""
    plan = make_plan(registry)
    for finding in plan.findings:
        log.warning("%s; %s", finding.message, finding.advice)
    if enabled:
        log.info("kernel warm-up: %d keys to make ready", len(plan.backend_keys))
    else:
        log.info("kernel warm-up is switched off: kernel_config.enable_jit_warmup is False")
    progress = _Progress(log, options.pop("progress", None))
    return warm(plan, enabled=enabled, progress=progress, **options)


class _Progress:
    """Logs how far warm-up is, once in a while, and hands on to the caller's own function."""

    def __init__(self, log: logging.Logger, following: Any) -> None:
        self.log, self.following = log, following
        self.next = PROGRESS_EVERY_S

    def __call__(self, done: int, total: int, item: PlanItem, seconds: float) -> None:
        """After each key."""
        if seconds >= self.next and done < total:
            self.next = seconds + PROGRESS_EVERY_S
            self.log.info("kernel warm-up: %d of %d after %.1f s", done, total, seconds)
        if self.following is not None:
            self.following(done, total, item, seconds)


def _registry_of(found: Any) -> JitWarmupRegistry:
    if isinstance(found, JitWarmupRegistry):
        return found
    for holder in (found, getattr(found, "model_runner", None)):
        registry = getattr(holder, "jit_warmup_registry", None)
        if registry is not None:
            return registry  # type: ignore[no-any-return]
    raise RegistrationError(
        f"kernel_warmup: neither {type(found).__qualname__} nor its model_runner has a "
        "jit_warmup_registry: decorate the runner's __init__ with JitWarmupRegistry.capture, or "
        "pass the registry"
    )


def _lines(error: Exception) -> list[str]:
    return [str(error), *getattr(error, "__notes__", ())]
