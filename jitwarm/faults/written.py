"""Faults whose launches are written down, because nothing of them can be launched here: of key
functions, of autotuned kernels, of kernels with heuristics.
"""

from __future__ import annotations

import inspect
from typing import Any

from jitwarm.backends.triton.unwrap import choice_text
from jitwarm.declare.launch import LaunchCase
from jitwarm.declare.nokeys import NoKeys
from jitwarm.errors import FaultError
from jitwarm.faults.form import Fault
from jitwarm.faults.launches import cases_of, points_of, several, without_samples
from jitwarm.findings import Finding
from jitwarm.plan import PlanKey
from jitwarm.proof.keyfunction import KeyFunction
from jitwarm.proof.prove import prove
from jitwarm.proof.reach import reach_of


def key_function_findings(fault: Fault, function: KeyFunction) -> list[Finding]:
    """Findings of the keys of a compiler of one's own.

    Raises `FaultError` for a fault that really launches: there is no compiler.
    """
    if fault.steps or fault.warmup is not None:
        raise FaultError(
            f"Fault({fault.title!r}): a KeyFunction has no compiler, so nothing of it can be "
            "launched; write launches down, or use a StubKernel"
        )
    values: list[Any] = []
    for one in several(fault.declared):
        is_inputs = isinstance(one, LaunchCase | dict)
        values += [function.key(**p) for p in cases_of(fault, one)] if is_inputs else [one]
    return without_samples(fault, prove(function, values, points_of(fault)).findings)


def wrapped_findings(fault: Fault) -> list[Finding]:
    """The proof of its written launches against its declared ones: the keys are those of the
    JITFunction behind each launch, one for each configuration, and the choice of an autotuner.

    Raises `FaultError` for a fault that really warms or launches: there a contract class declares
    such a kernel.
    """
    if fault.steps or fault.warmup is not None or fault.launches is None:
        raise FaultError(
            f"Fault({fault.title!r}): an autotuned kernel, or one with heuristics, is warmed by a "
            "contract class or by hand: leave `kernel` and `declared` out and give `warmup` and "
            "`launches` as functions, or write its launches down"
        )
    declared = fault.declared
    if inspect.isfunction(declared):
        takes = "config" in inspect.signature(declared).parameters
        declared = declared(**({"config": fault.config} if takes else {}))
    cases = [] if isinstance(declared, NoKeys) else several(declared)
    reach = reach_of(fault.kernel)
    planned: list[PlanKey] = []
    for case in [point for one in cases for point in cases_of(fault, one)]:
        reached = reach.at(case)
        planned += [PlanKey(reach.name, backend, key, key) for backend, key in reached.needs]
        if reached.choices:
            text = reach.name + choice_text(reached.choices)
            planned.append(PlanKey(reach.name, "opaque", f"{text} (tuned)", ""))
    return without_samples(fault, prove(fault.kernel, planned, points_of(fault)).findings)
