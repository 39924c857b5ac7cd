"""What a proof learns besides the plan: choices that real steps make, and whether warm-up is on."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from jitwarm.findings import Finding
from jitwarm.observe.events import Event
from jitwarm.plan import Plan
from jitwarm.proof.plan import ProofPlan
from jitwarm.proof.result import KernelProof, Proof

SWITCHED_OFF = "warm-up is switched off (enable_jit_warmup = false)"
SWITCH_ON = "switch it on in the scenario: [warmup] enable_jit_warmup = true"


def with_tunings(proof: Proof, plan: Plan, tunings: Iterable[Event]) -> Proof:
    """The proof with an AUTOTUNE finding for each choice that real steps make and start-up does
    not, unless an envelope told it.
    """
    planned = ProofPlan(plan)
    told = {(one.kernel, one.field, one.seen) for one in proof.findings if one.kind == "AUTOTUNE"}
    first: dict[str, Finding] = {}
    for event in tunings:
        if event.key not in planned.choices:
            first.setdefault(event.key, planned.explain_choice(event.key, event))
    new = [one for one in first.values() if (one.kernel, one.field, one.seen) not in told]
    return replace(proof, findings=(*proof.findings, *new))


def switched_off(proof: Proof, plan: Plan) -> Proof:
    """The proof where start-up makes nothing ready: each planned key that is needed is missing."""
    planned = ProofPlan(plan)
    kernels, findings = [], []
    for one in proof.kernels:
        gone = _needed(one, planned)
        kernels.append(
            replace(
                one,
                missing=one.missing + len(gone),
                missing_keys=(*one.missing_keys, *gone),
            )
        )
        if gone:
            them = f"the {len(gone)} planned keys" if len(gone) > 1 else "the planned key"
            findings.append(
                Finding(
                    "MISS",
                    one.kernel,
                    f"{one.kernel}: {SWITCHED_OFF}: {them} that launches need are not made ready",
                    seen=gone[0],
                    advice=SWITCH_ON,
                )
            )
    return Proof(tuple(kernels), (*findings, *proof.findings))


def _needed(kernel: KernelProof, planned: ProofPlan) -> list[str]:
    """The planned keys of a kernel that launches need."""
    if not kernel.needed:
        return []
    own = dict.fromkeys(item.backend_key for item in planned.of_kernel(kernel.kernel))
    return [key for key in own if key not in kernel.unreached_keys]
