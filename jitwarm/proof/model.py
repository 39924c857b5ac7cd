"""Prove a model: its envelopes against its plan, and both against steps that it really makes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from jitwarm.amounts import counted
from jitwarm.errors import DeclarationError
from jitwarm.findings import Finding
from jitwarm.judge.coverage import digest
from jitwarm.judge.explain import explain_miss
from jitwarm.judge.planned import path_of
from jitwarm.plan import Plan
from jitwarm.proof.envelope import Envelope
from jitwarm.proof.judge import missed
from jitwarm.proof.plan import ProofPlan
from jitwarm.proof.prove import judged, needed_of, searched
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
    planned = ProofPlan(plan)
    founds = searched(_declared(declare), planned)
    proof = judged(founds, planned, seconds or {}, launched=launched)
    return _held(proof, needed_of(founds), planned, launched)


def _declared(declare: Callable[[], Any]) -> list[Envelope]:
    """What `envelopes()` gives. Raises `DeclarationError` for anything but Envelope objects."""
    site = getattr(declare, "__qualname__", "envelopes")
    given = declare()
    if isinstance(given, Envelope):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, Mapping | str):
        raise DeclarationError(
            f"{site}() returns a {type(given).__qualname__}; return or yield Envelope objects"
        )
    envelopes = list(given)
    for one in envelopes:
        if not isinstance(one, Envelope):
            raise DeclarationError(
                f"{site}() yields a {type(one).__qualname__}; yield Envelope objects"
            )
    return envelopes


def _held(
    proof: Proof, needed: Collection[str], planned: ProofPlan, launched: Mapping[str, int]
) -> Proof:
    """The proof with its envelopes, which have the keys `needed`, held against real launches."""
    # A kernel that the plan does not know has no name but its path.
    names = {path_of(key): one.kernel for one in proof.kernels for key in one.missing_keys}
    outside: dict[str, list[str]] = {}
    for key in launched:
        if key not in needed:
            name = names.get(path_of(key)) or planned.name(path_of(key))
            outside.setdefault(name, []).append(key)
    findings = list(proof.findings)
    for name, keys in outside.items():
        unplanned = [key for key in keys if key not in planned.ready]
        own = [one.backend_key for one in planned.of_kernel(name)]
        findings += [finding for _, finding in missed(name, unplanned, own)]
        near = explain_miss(name, keys[0], needed, had="in an envelope")
        said = "none launches this kernel" if near.kind == "UNDECLARED" else near.message
        many = counted(len(keys), "key")
        findings.append(
            Finding(
                "ENVELOPE",
                name,
                f"{name}: real steps launch {many} that no envelope of the model has; "
                f"{said.removeprefix(f'{name}: ')}",
                field=near.field,
                warmed=near.warmed,
                seen=keys[0],
                advice="add the launch to the model's envelopes()",
            )
        )
    kernels = [
        _with_launches(one, outside[one.kernel], planned) if one.kernel in outside else one
        for one in proof.kernels
    ]
    known = {one.kernel for one in proof.kernels}
    for name in outside.keys() - known:
        counts = {key: launched[key] for key in outside[name]}
        kernels.append(_sampled_kernel(name, counts, {}, planned, _NOWHERE))
    return Proof(tuple(kernels), tuple(findings))


_NOWHERE = "real steps launch it, and no envelope does"


def _with_launches(kernel: KernelProof, keys: Sequence[str], planned: ProofPlan) -> KernelProof:
    """The proof of a kernel of which real steps launch `keys` outside of its envelopes."""
    missing = [key for key in keys if key not in planned.ready]
    verdict: Any = max(kernel.verdict, "SEARCHED", key=STRENGTH.index)
    return replace(
        kernel,
        verdict=verdict,
        needed=kernel.needed + len(keys),
        missing=kernel.missing + len(missing),
        reasons=(*kernel.reasons, "real steps launch what no envelope has"),
        missing_keys=(*kernel.missing_keys, *missing),
    )


def _sampled(plan: Plan, launched: Mapping[str, int]) -> Proof:
    """What the launches of some steps show."""
    kernels, findings = [], list[Finding]()
    planned = ProofPlan(plan)
    # A kernel that owns its compile may launch where nobody counts.
    paths = {path_of(key) for key in launched}
    told = {
        kernel: {
            one.backend_key: None
            for one in planned.of_kernel(kernel)
            if one.backend != "opaque" or path_of(one.backend_key) in paths
        }
        for kernel in planned.kernels()
    }
    by_kernel: dict[str, dict[str, int]] = {kernel: {} for kernel, own in told.items() if own}
    for key, count in launched.items():
        by_kernel.setdefault(planned.name(key), {})[key] = count
    for kernel, counts in by_kernel.items():
        own = told.get(kernel, {})
        unplanned = (key for key in counts if key not in own)
        findings += [finding for _, finding in missed(kernel, unplanned, own)]
        kernels.append(_sampled_kernel(kernel, counts, own, planned, "the model has no envelopes"))
    return Proof(tuple(kernels), tuple(findings))


def _sampled_kernel(
    name: str,
    counts: Mapping[str, int],
    own: Mapping[str, None],
    planned: ProofPlan,
    reason: str,
) -> KernelProof:
    """What the launches in `counts`, by key, show of a kernel whose plan has the keys `own`."""
    missing = [key for key in counts if key not in own]
    unreached = [key for key in own if key not in counts]
    points = sum(counts.values())
    return KernelProof(
        kernel=name,
        backend="+".join(dict.fromkeys(i.backend for i in planned.of_kernel(name))) or "-",
        verdict="SAMPLED",
        points=points,
        of=points,
        needed=len(counts),
        planned=len(own),
        missing=len(missing),
        unreached=len(unreached),
        digest=digest(counts),
        reasons=(reason,),
        missing_keys=tuple(missing),
        unreached_keys=tuple(unreached),
    )
