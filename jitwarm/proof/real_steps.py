"""What a proof learns besides the plan: choices that real steps make, how they spell their
launches, and whether warm-up is on.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from jitwarm.backends.triton.residents import Respelt
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


def with_respelt(proof: Proof, plan: Plan, launches: Iterable[Respelt]) -> Proof:
    """The proof with a DISK-HIT finding for each way in which real steps spell launches of planned
    keys that Triton does not find in memory, unless an envelope told it.
    """
    planned = ProofPlan(plan)
    gone: dict[str, dict[str, None]] = {}
    findings = {one.message: one for one in proof.findings if one.kind == "DISK-HIT"}
    told = len(findings)
    for launch in launches:
        finding = planned.explain_respelt(launch)
        gone.setdefault(finding.kernel, {})[launch.text] = None
        findings.setdefault(finding.message, finding)
    kernels = tuple(_without(one, gone.get(one.kernel, ())) for one in proof.kernels)
    return Proof(kernels, (*proof.findings, *list(findings.values())[told:]))


def _without(kernel: KernelProof, keys: Iterable[str]) -> KernelProof:
    """The proof of a kernel whose `keys` are missing, too."""
    new = [key for key in keys if key not in kernel.missing_keys]
    missing = (*kernel.missing_keys, *new)
    return replace(kernel, missing=len(missing), missing_keys=missing)


def switched_off(proof: Proof, plan: Plan) -> Proof:
    """The proof where start-up makes nothing ready: each planned key that is needed is missing."""
    planned = ProofPlan(plan)
    kernels, findings = [], []
    for one in proof.kernels:
        gone = _needed(one, planned)
        kernels.append(_without(one, gone))
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
