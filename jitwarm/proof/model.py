"""Prove a model: its envelopes against its plan, and both against steps that it really makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from jitwarm.coverage import digest
from jitwarm.explain import explain_miss
from jitwarm.findings import Finding
from jitwarm.plan import Plan
from jitwarm.planned import path_of
from jitwarm.proof.envelope import Envelope
from jitwarm.proof.plan import ProofPlan
from jitwarm.proof.prove import prove_envelopes
from jitwarm.proof.result import STRENGTH, KernelProof, Proof


def prove_model(
    model: Any,
    plan: Plan,
    launched: Mapping[str, int],
    *,
    seconds: Mapping[str, float] | None = None,
) -> Proof:
    """What the steps of `model` can launch, compared with `plan`.

    `launched` are the launches of real steps by backend key: whole points, against which the
    envelopes are held. A launch outside of its kernel's envelopes is an ENVELOPE finding, and the
    kernel is only SEARCHED then. Of a model without `envelopes` nothing more is known than these
    steps: its kernels are SAMPLED, and what they did not reach is counted and no finding.
    """
    declare = getattr(model, "envelopes", None)
    if declare is None:
        return _sampled(plan, launched)
    envelopes: list[Envelope] = list(declare())
    return _held(prove_envelopes(envelopes, plan, seconds=seconds), plan, launched)


def _held(proof: Proof, plan: Plan, launched: Mapping[str, int]) -> Proof:
    """The proof with its envelopes held against real launches."""
    planned = ProofPlan(plan)
    reached = set(planned.ready)
    for kernel in proof.kernels:
        reached -= set(kernel.unreached_keys)
        reached |= set(kernel.missing_keys)
    outside: dict[str, list[str]] = {}
    for key in launched:
        if key not in reached:
            outside.setdefault(planned.name(key), []).append(key)
    findings = list(proof.findings)
    for name, keys in outside.items():
        near = explain_miss(name, keys[0], [k for k in reached if path_of(k) == path_of(keys[0])])
        findings.append(
            Finding(
                "ENVELOPE",
                name,
                f"{name}: {len(keys)} keys that real steps launch are in no envelope of the "
                f"model; {near.message}",
                field=near.field,
                warmed=near.warmed,
                seen=keys[0],
                advice="add the launch to the model's envelopes()",
            )
        )
    kernels = [
        replace(one, verdict=_weaker(one)) if one.kernel in outside else one
        for one in proof.kernels
    ]
    return Proof(tuple(kernels), tuple(findings))


def _weaker(kernel: KernelProof) -> Any:
    return max(kernel.verdict, "SEARCHED", key=STRENGTH.index)


def _sampled(plan: Plan, launched: Mapping[str, int]) -> Proof:
    """What the launches of some steps show."""
    kernels, findings = [], list[Finding]()
    planned = ProofPlan(plan)
    # No launch can be told to be one of a key of backend `opaque`.
    told = {
        kernel: {
            one.backend_key: None for one in planned.of_kernel(kernel) if one.backend != "opaque"
        }
        for kernel in planned.kernels()
    }
    by_kernel: dict[str, dict[str, int]] = {kernel: {} for kernel, own in told.items() if own}
    for key, count in launched.items():
        by_kernel.setdefault(planned.name(key), {})[key] = count
    for kernel, counts in by_kernel.items():
        own = told.get(kernel, {})
        missing = [key for key in counts if key not in own]
        findings += [explain_miss(kernel, key, own) for key in missing]
        unreached = [key for key in own if key not in counts]
        points = sum(counts.values())
        kernels.append(
            KernelProof(
                kernel=kernel,
                backend="+".join(dict.fromkeys(i.backend for i in planned.of_kernel(kernel)))
                or "-",
                verdict="SAMPLED",
                points=points,
                of=points,
                needed=len(counts),
                planned=len(own),
                missing=len(missing),
                unreached=len(unreached),
                digest=digest(counts),
                missing_keys=tuple(missing),
                unreached_keys=tuple(unreached),
            )
        )
    return Proof(tuple(kernels), tuple(findings))
