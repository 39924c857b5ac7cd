"""Prove that a plan has every key that launches need, and none that they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from jitwarm import keys
from jitwarm.errors import DeclarationError, KeyValueError
from jitwarm.findings import Finding
from jitwarm.judge.warmups import crash_findings
from jitwarm.plan import Plan, make_plan
from jitwarm.proof.budget import KEYS
from jitwarm.proof.descriptors import (
    descriptors_text,
    watched_descriptors,
    with_descriptors,
)
from jitwarm.proof.envelope import Envelope
from jitwarm.proof.found import Found
from jitwarm.proof.incomplete import ROUND_TRIP
from jitwarm.proof.judge import judge
from jitwarm.proof.plan import ProofPlan
from jitwarm.proof.reach import Reach, reach_of
from jitwarm.proof.result import Proof
from jitwarm.proof.search import WALKED, evaluate, search
from jitwarm.registry import JitWarmupRegistry

SAMPLED = 4 * WALKED  # launches of one kernel, shared by its envelopes that are only sampled
LEAST = 256  # launches of each of them


def prove(
    kernel: Any,
    plan: Plan | Iterable[Any] | None,
    launches: Envelope | Iterable[Any],
    *,
    config: Any = None,
    seconds: Mapping[str, float] | None = None,
    budget: int = KEYS,
) -> Proof:
    """Compare what launches of `kernel` need with what `plan` has.

    `plan` is a `Plan`, its items or keys, for a `KeyFunction` also the keys themselves, or None:
    what the kernel declares for `config`. `launches` is an `Envelope`, several, or mappings of
    arguments, each one launch. `seconds` says what warming a backend key costs, for the findings;
    more than `budget` planned keys of a kernel are a finding, and so is a key that could not be
    planned. Needs a device that is active, and compiles and launches nothing. Raises
    `DeclarationError` for an envelope of another kernel.
    """
    with watched_descriptors() as wrong:
        if isinstance(kernel, type):
            reach_of(kernel)  # says so; an envelope of its object would only be of another kernel
        planned = ProofPlan(_own_plan(kernel, config) if plan is None else plan, kernel)
        proof = _proof(_envelopes(kernel, launches), planned, seconds or {}, budget, kernel)
    findings = (*proof.findings, *_failed(proof, planned))
    return replace(proof, findings=tuple(with_descriptors(findings, descriptors_text(wrong))))


def prove_envelopes(
    envelopes: Iterable[Envelope],
    plan: Plan | Iterable[Any],
    *,
    seconds: Mapping[str, float] | None = None,
    budget: int = KEYS,
) -> Proof:
    """The same for all kernels of a model at once: `envelopes` is everything that it can launch.

    So a kernel of the plan that has no envelope is unreached. Envelopes of one kernel are united
    before unreached keys are counted.
    """
    return _proof(list(envelopes), ProofPlan(plan), seconds or {}, budget)


def fingerprint(plan: Plan | Iterable[Any]) -> str:
    """One id for a plan's keys: processes that plan the same agree on it, whatever their hash seed
    and whatever they built before.
    """
    entries = {(e.kernel, e.declared or "", e.backend_key) for e in ProofPlan(plan).ready.values()}
    return keys.key_id("\n".join("\t".join(entry) for entry in sorted(entries)))


def _own_plan(kernel: Any, config: Any) -> Plan | tuple[()]:
    if not hasattr(kernel, "enumerate_keys"):
        return ()
    registry = JitWarmupRegistry(config)
    with registry.activate():
        JitWarmupRegistry.register(kernel)
    return make_plan(registry)


def _failed(proof: Proof, planned: ProofPlan) -> list[Finding]:
    """A WARM-CRASH for each key, or all keys, of the kernel that could not be planned, unless a
    finding says the same of the key itself.
    """
    names = {one.kernel for one in proof.kernels}
    told = {(one.kind, one.kernel) for one in proof.findings}
    failures = tuple(
        (name, error)
        for name, error in planned.failures
        if name in names
        and not isinstance(error, KeyValueError)
        and not (ROUND_TRIP in str(error) and ("KEY-INCOMPLETE", name) in told)
    )
    advice = "mend it; until then these keys are not planned, and launches that need them compile"
    return [replace(one, advice=advice) for one in crash_findings(failures)]


def _envelopes(kernel: Any, launches: Envelope | Iterable[Any]) -> list[Any]:
    """The envelopes in `launches`, and the mappings, each a launch."""
    if isinstance(launches, Envelope | Mapping):
        given = [launches]
    elif isinstance(launches, Iterable):
        given = list(launches)
    else:
        raise DeclarationError(
            f"launches are an Envelope, or an iterable of Envelope objects and mappings of "
            f"arguments, got a {type(launches).__qualname__}"
        )
    for one in given:
        if isinstance(one, Envelope):
            if kernel not in (one.kernel, getattr(one.kernel, "kernel", None)):
                raise DeclarationError(
                    f"{one.site}: it is an envelope of another kernel ({one.kernel!r}); "
                    "prove_envelopes takes those of several"
                )
        elif not isinstance(one, Mapping):
            raise DeclarationError(
                f"launches are Envelope objects or mappings of arguments, got a "
                f"{type(one).__qualname__}"
            )
    return given


def searched(given: Iterable[Any], planned: ProofPlan, kernel: Any = None) -> list[Found]:
    """Every envelope searched, and every launch of `kernel` that was given evaluated."""
    reaches: dict[int, Reach] = {}

    def reach(one: Any) -> Reach:
        known = reaches.get(id(one))
        if known is None:
            known = reaches[id(one)] = reach_of(one, planned)
        return known

    found, single = [], []
    given = list(given)
    sites = Counter(id(one.kernel) for one in given if isinstance(one, Envelope))
    for one in given:
        if isinstance(one, Envelope):
            # Sites without forms share what a kernel may cost: a step can have hundreds of slices.
            most = max(LEAST, SAMPLED // sites[id(one.kernel)])
            found.append(search(one, reach(one.kernel if kernel is None else kernel), most=most))
        else:
            single.append(one)
    if single or (kernel is not None and not found):
        found.append(evaluate(kernel, single, reach(kernel)))
    return found


def _proof(
    given: Iterable[Any],
    planned: ProofPlan,
    seconds: Mapping[str, float],
    budget: int,
    kernel: Any = None,
) -> Proof:
    founds = searched(given, planned, kernel)
    return judged(founds, planned, seconds, budget, is_all=kernel is None)


def needed_of(founds: Iterable[Found]) -> set[str]:
    """The backend keys that launches of the envelopes need."""
    return {key for found in founds for key in found.smallest}


def judged(
    founds: Sequence[Found],
    planned: ProofPlan,
    seconds: Mapping[str, float],
    budget: int = KEYS,
    *,
    is_all: bool = True,
    launched: Collection[str] = (),
) -> Proof:
    """What was found of each kernel, against the plan.

    `is_all` says that `founds` are of all kernels, so that one of the plan without any is
    unreached; `launched` are the keys of real steps, which no envelope may have.
    """
    by_name: dict[str, list[Found]] = {}
    for found in founds:
        by_name.setdefault(found.reach.name, []).append(found)
    if is_all:
        for name in planned.kernels():
            by_name.setdefault(name, [])
    reached = needed_of(founds)
    kernels, findings = [], []
    for name, own in by_name.items():
        one, said = judge(name, own, planned, reached, launched, seconds=seconds, budget=budget)
        kernels.append(one)
        findings += said
    return Proof(tuple(kernels), tuple(findings))
