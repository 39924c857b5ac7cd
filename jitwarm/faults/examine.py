"""Run one fault in this process: plan, prove, warm, replay under a monitor."""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from jitwarm import device
from jitwarm.backends.triton.unwrap import is_wrapped
from jitwarm.declare.declaration import Declaration
from jitwarm.errors import FaultError, KeyValueError
from jitwarm.faults.form import Fault
from jitwarm.faults.launches import points_of, without_samples
from jitwarm.faults.written import key_function_findings, wrapped_findings
from jitwarm.findings import Finding
from jitwarm.judge.plans import outside_findings
from jitwarm.judge.warmups import absent_findings, crash_findings, stored_findings
from jitwarm.observe.events import Event
from jitwarm.observe.monitor import Monitor
from jitwarm.observe.phases import phase
from jitwarm.plan import Plan, PlanKey, make_plan
from jitwarm.proof.descriptors import descriptors_text, watched_descriptors
from jitwarm.proof.envelope import Envelope
from jitwarm.proof.incomplete import ROUND_TRIP
from jitwarm.proof.keyfunction import KeyFunction
from jitwarm.proof.unstable import refused_findings
from jitwarm.registry import JitWarmupRegistry, outside_scope
from jitwarm.warm import warm

# Every fault is judged for this device: its keys hold the architecture.
DEVICE = ("stub", "sm90")


class Examined(msgspec.Struct):
    """What one process of a fault found, its events, and what they are judged by: the plan, the
    keys that warm-up made ready, what its descriptors got wrong (see `descriptors`), and how long
    its steps took, if they were measured.
    """

    findings: list[Finding]
    events: list[Event] = []
    plan: list[PlanKey] = []
    ready: list[str] = []
    descriptors: str = ""
    step_ms: list[float] = []


def examine(fault: Fault, rank: int = 0, *, warming: Path | None = None) -> Examined:
    """Run `fault` as process `rank`. The file `warming` is there while it warms up, for whoever
    wants to know when this process died.

    Raises what its functions raise, and `FaultError` where the fault cannot be run.
    """
    device.activate(*DEVICE)
    if isinstance(fault.kernel, KeyFunction):
        return Examined(key_function_findings(fault, fault.kernel))
    if is_wrapped(fault.kernel):
        return Examined(wrapped_findings(fault))
    subject = subject_of(fault)
    plan = plan_of(fault, subject)
    found = list(plan.findings)
    is_written = fault.launches is not None and not fault.steps
    if is_written or fault.budget is not None:
        found += _proved(fault, subject, plan)
    examined = Examined(found, plan=plan.keys())
    if fault.steps or fault.warmup is not None or _only_warms(fault):
        _replay(fault, plan, rank, examined, warming)
    else:
        found += crash_findings(plan.failures, enabled=is_enabled(fault))
    examined.findings = _without_echoes(plan, found)
    return examined


def subject_of(fault: Fault) -> Any:
    """What is registered and proved: a `Declaration` around a native kernel, which has the name,
    and anything else as it is.
    """
    kernel, declared = fault.kernel, fault.declared
    if declared is None:
        return kernel
    if hasattr(kernel, "enumerate_keys"):
        raise FaultError(
            f"Fault({fault.title!r}): {kernel.kernel_name} declares its own keys; leave "
            "`declared` out, and give `register` the arguments of its registration"
        )
    cases = declared if inspect.isfunction(declared) else lambda: declared
    return Declaration(kernel, cases, getattr(getattr(kernel, "fn", None), "__name__", "kernel"))


def plan_of(fault: Fault, subject: Any) -> Plan:
    """What is declared or registered of a fault's subject."""
    registry = JitWarmupRegistry(fault.config)
    if hasattr(subject, "enumerate_keys"):
        with registry.activate():
            subject.register_warmup(**(fault.register or {}))
    return make_plan(registry)


def _proved(fault: Fault, subject: Any, plan: Plan) -> list[Finding]:
    """Findings of the proof; what a sample does not reach is left out."""
    from jitwarm.proof.prove import prove

    if fault.kernel is None:
        raise FaultError(f"Fault({fault.title!r}): launches that are written down need a kernel")
    limits: dict[str, Any] = {}
    if fault.budget is not None:
        limits["budget"] = fault.budget.keys
        limits["seconds"] = dict.fromkeys(plan.backend_keys, fault.budget.seconds_per_key)
    launches = [
        dataclasses.replace(one, kernel=subject)
        if isinstance(one, Envelope) and one.kernel in (fault.kernel, _core(fault.kernel))
        else one
        for one in points_of(fault)
    ]
    findings = prove(subject, plan, launches, **limits).findings
    if fault.launches is None:
        return [one for one in findings if one.kind == "BUDGET"]
    # What could not be planned is told with what could not be made ready; and how a warm-up by hand
    # spells its launches is not known here.
    kinds = ("WARM-CRASH",) if fault.warmup is None else ("WARM-CRASH", "DISK-HIT")
    return without_samples(fault, [one for one in findings if one.kind not in kinds])


def _core(kernel: Any) -> Any:
    """The native kernel of a declaration: an envelope of either is one of the other."""
    return kernel.kernel if isinstance(kernel, Declaration) else kernel


def _only_warms(fault: Fault) -> bool:
    """Whether a fault is about its warm-up alone."""
    return fault.kernel is not None and fault.launches is None and fault.budget is None


def _replay(fault: Fault, plan: Plan, rank: int, examined: Examined, warming: Path | None) -> None:
    """Warm-up, and then the real launches, under a monitor; adds to `examined`."""
    monitor = Monitor("record", rank=rank)
    report = None
    found = examined.findings
    with monitor, watched_descriptors() as wrong:
        if warming is not None:
            warming.touch()
        if fault.warmup is None or not is_enabled(fault):
            report = warm(plan, jobs=1, depth=fault.depth, enabled=is_enabled(fault))
            found += stored_findings(report)
        if fault.warmup is not None:
            found += _warmed_by_hand(fault, fault.warmup, rank)
        made = {event.key for event in monitor.events if event.kind in ("compile", "disk_hit")}
        if fault.warmup is not None and is_enabled(fault):
            found += absent_findings(plan.items, made)
        if warming is not None:
            warming.unlink()
        # A warm-up in threads of its own does not take the phase along, and is one all the same.
        monitor.events[:] = [_at_start_up(event) for event in monitor.events]
        monitor.begin_serving()
        for number, step in enumerate(fault.steps):
            monitor.step = number
            start = time.perf_counter()
            _call(step, rank)
            examined.step_ms.append((time.perf_counter() - start) * 1e3)
    if fault.step_ms != "measured":
        examined.step_ms.clear()
    found += outside_findings(outside_scope())
    found += crash_findings(plan.failures, report, enabled=is_enabled(fault))
    outcomes = report.outcomes if report is not None else ()
    warmed = (one.item.backend_key for one in outcomes if one.status == "warmed")
    examined.events = monitor.events
    examined.ready = sorted({*made, *warmed})
    examined.descriptors = descriptors_text(wrong)


def _at_start_up(event: Event) -> Event:
    return msgspec.structs.replace(event, phase="warm") if event.phase == "serve" else event


def is_enabled(fault: Fault) -> bool:
    """Whether warm-up is on: for the fault, and in its configuration."""
    settings = getattr(fault.config, "kernel_config", None)
    return fault.enabled and bool(getattr(settings, "enable_jit_warmup", True))


def _warmed_by_hand(fault: Fault, warmup: Callable[..., Any], rank: int) -> Iterable[Finding]:
    """Run a hand-written warm-up; a WARM-CRASH if it raises: then the rest of it is not warmed."""
    try:
        with phase("warm"):
            _call(warmup, rank)
    except Exception as error:
        kernel = fault.kernel
        name = getattr(kernel, "kernel_name", None) or getattr(kernel, "__name__", None)
        function = getattr(warmup, "__qualname__", type(warmup).__qualname__)
        kind, text = type(error).__name__, " ".join(str(error).split())
        yield Finding(
            "WARM-CRASH",
            str(name or function),
            f"the warm-up {function} failed: {kind}: {text}",
            seen=kind,
            advice="catch what one key raises, so that the others are warmed and start-up survives",
        )


def _without_echoes(plan: Plan, found: list[Finding]) -> list[Finding]:
    """Each mistake once: a key that leads to another one, or that is no value, also fails to be
    planned.
    """
    for kernel in dict.fromkeys(kernel for kernel, _ in plan.failures):
        found += refused_findings(kernel, plan.failures, found)
    told = {(one.kind, one.kernel) for one in found}
    echoes = [
        " ".join(str(error).split())
        for kernel, error in plan.failures
        if isinstance(error, KeyValueError)
        or (ROUND_TRIP in str(error) and ("KEY-INCOMPLETE", kernel) in told)
    ]
    return [
        one
        for one in found
        if one.kind != "WARM-CRASH" or not any(text in one.message for text in echoes)
    ]


def _call(function: Callable[..., Any], rank: int) -> None:
    """Call a fault's function, with the rank if it has a parameter of that name."""
    takes = "rank" in inspect.signature(function).parameters
    function(**({"rank": rank} if takes else {}))
