"""What was found of one kernel against the plan: missing and unreached keys, in findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from jitwarm import keys as key_texts
from jitwarm.amounts import counted
from jitwarm.backends.keyfields import fields_of
from jitwarm.findings import Finding
from jitwarm.judge.explain import explain_miss, explain_tuning
from jitwarm.judge.planned import path_of
from jitwarm.judge.plans import collision_findings
from jitwarm.plan import PlanItem
from jitwarm.proof.budget import budget_findings
from jitwarm.proof.found import Found
from jitwarm.proof.incomplete import built_instead, incomplete_findings
from jitwarm.proof.plan import ProofPlan
from jitwarm.proof.result import STRENGTH, KernelProof, Verdict
from jitwarm.proof.space import Point, point_text
from jitwarm.proof.unread import unread_findings
from jitwarm.proof.unstable import refused_findings, unstable_findings

SHOWN = 3  # keys that a message spells out; all of them are in the proof


def judge(
    name: str,
    founds: Sequence[Found],
    planned: ProofPlan,
    reached_anywhere: Iterable[str],
    launched: Collection[str] = (),
    *,
    seconds: Mapping[str, float],
    budget: int,
) -> tuple[KernelProof, list[Finding]]:
    """One kernel's proof and findings. `founds` are those of all its envelopes, none where the plan
    has the kernel and nobody launches it; `reached_anywhere` are the keys that launches of any
    kernel need, and `launched` those of real steps, in an envelope or not.
    """
    own = planned.of_kernel(name)
    needed: dict[str, tuple[Point, Found]] = {}
    for found in founds:
        for key, point in found.smallest.items():
            needed.setdefault(key, (point, found))
    keys = dict.fromkeys(entry.backend_key for entry in own)
    unplanned = [key for key in needed if key not in planned.ready]
    respelt = dict.fromkeys(one.text for found in founds for one in found.respelt)
    missing = [*unplanned, *respelt]
    reached = set(reached_anywhere) | needed.keys()
    unreached = [key for key in keys if key not in reached and key not in launched]
    paths = set(map(path_of, keys))
    used = {**needed, **dict.fromkeys(key for key in launched if path_of(key) in paths)}
    findings = [one for found in founds for one in found.findings]
    findings += _missing(name, unplanned, needed, planned, built_instead(name, founds, planned))
    findings += _respelt(founds, planned)
    findings += _choices(name, founds, planned)
    findings += _unreached(name, founds, unreached, own, used.keys() - needed.keys(), used, seconds)
    if founds:
        findings += _never_dispatched(name, founds, own, reached)
        findings += incomplete_findings(name, founds, planned)
        findings += unstable_findings(name, founds, planned)
        findings += unread_findings(name, founds)
    findings += refused_findings(name, planned.failures, findings)
    triton = [e.backend_key for e in own if e.backend == "triton"]
    triton += [key for found in founds for key, b in found.backends.items() if b == "triton"]
    findings += collision_findings((name, key) for key in dict.fromkeys(triton))
    findings += budget_findings(name, founds, keys, reached | used.keys(), seconds, budget)
    backends = dict.fromkeys(entry.backend for entry in own)
    for found in founds:
        backends |= dict.fromkeys(found.backends.values())
        if not found.backends and not own:
            backends.setdefault(found.reach.backend)
    proof = KernelProof(
        kernel=name,
        backend="+".join(backends) or "-",
        verdict=_verdict(name, founds, planned, needed),
        points=sum(found.points for found in founds),
        of=sum(found.of for found in founds),
        needed=len(needed),
        planned=len(keys),
        missing=len(missing),
        unreached=len(unreached),
        digest=key_texts.key_id("\n".join(sorted(needed))),
        reasons=_reasons(founds),
        missing_keys=tuple(missing),
        unreached_keys=tuple(unreached),
    )
    return proof, _distinct(findings)


def _reasons(founds: Sequence[Found]) -> tuple[str, ...]:
    """Why a verdict is no better, each with its site."""
    if not founds:
        return ("no envelope of the model launches it",)
    return tuple(
        dict.fromkeys(
            f"{found.envelope.site}: {why}" if found.envelope.site else why
            for found in founds
            for why in found.reasons
        )
    )


def _verdict(
    name: str, founds: Sequence[Found], planned: ProofPlan, needed: Mapping[str, object]
) -> Verdict:
    agreed = all(found.verdict == "PROVED" or not found.points for found in founds)
    if name in planned.reasons and not planned.of_kernel(name) and not needed and agreed:
        return "NO KEYS"
    if not founds:
        return "SAMPLED"
    return max((found.verdict for found in founds), key=STRENGTH.index)


def _missing(
    name: str,
    missing: Sequence[str],
    needed: Mapping[str, tuple[Point, Found]],
    planned: ProofPlan,
    built: Mapping[str, None],
) -> Iterable[Finding]:
    if missing and not planned.of_kernel(name) and not built:
        point, found = needed[missing[0]]
        reason = planned.reasons.get(name)
        said = f'it says that it needs none ("{reason}")' if reason else "no key of it is planned"
        many = counted(len(missing), "key")
        yield Finding(
            "UNDECLARED",
            name,
            f"{name}: launches need {many}, and {said}",
            seen=missing[0],
            advice="declare these launches, and register the kernel",
            smallest=point_text(point),
            site=found.envelope.site,
            owners=found.envelope.owners,
        )
        return
    known = {**dict.fromkeys(planned.ready), **built}
    for key, finding in missed(name, [key for key in missing if key not in built], known):
        point, found = needed[key]
        yield replace(
            finding,
            smallest=point_text(point),
            site=found.envelope.site,
            owners=found.envelope.owners,
        )


def missed(name: str, keys: Iterable[str], known: Iterable[str]) -> Iterator[tuple[str, Finding]]:
    """A MISS for each of `keys`, which launches need and nobody planned, against the `known` ones;
    of the keys of a function that `known` has no key of one UNDECLARED, with the first of them.
    """
    known = list(known)
    unknown: dict[str, list[str]] = {}
    for key in keys:
        finding = explain_miss(name, key, known)
        if finding.kind == "UNDECLARED":
            unknown.setdefault(path_of(key), []).append(key)
        else:
            yield key, finding
    for own in unknown.values():
        many = counted(len(own), "key")
        first = "; the first is" if len(own) > 1 else ":"
        yield (
            own[0],
            replace(
                explain_miss(name, own[0], known),
                message=f"{name}: launches need {many} of a kernel without any in the plan{first} "
                f"{own[0]}",
            ),
        )


def _respelt(founds: Sequence[Found], planned: ProofPlan) -> Iterable[Finding]:
    """Launches of planned keys that Triton does not find in memory, one for each way in which they
    spell their options.
    """
    first: dict[str, Finding] = {}
    for found in founds:
        for launch, point in found.respelt.items():
            finding = replace(
                planned.explain_respelt(launch),
                smallest=point_text(point),
                site=found.envelope.site,
                owners=found.envelope.owners,
            )
            first.setdefault(finding.message, finding)
    yield from first.values()


def _choices(name: str, founds: Sequence[Found], planned: ProofPlan) -> Iterable[Finding]:
    """Choices of an autotuner that nobody makes at start-up."""
    for found in founds:
        for choice, point in found.choices.items():
            if choice not in planned.choices:
                yield replace(
                    explain_tuning(name, choice, planned.choices),
                    kind="AUTOTUNE",
                    smallest=point_text(point),
                    site=found.envelope.site,
                    owners=found.envelope.owners,
                )


def _unreached(
    name: str,
    founds: Sequence[Found],
    unreached: Sequence[str],
    own: Sequence[PlanItem],
    outside: Collection[str],
    used: Iterable[str],
    seconds: Mapping[str, float],
) -> Iterable[Finding]:
    """One finding for the unreached keys of each cause: `used` are the keys that launches need,
    `outside` those of them that are in no envelope.
    """
    total = len({entry.backend_key for entry in own})
    owners = tuple(dict.fromkeys(who for entry in own for who in entry.owners if who))
    for field, values, keys in _causes(unreached, used):
        them = "it" if len(keys) == 1 else "them"
        if not founds and not outside:
            said = "nobody says that it is launched"
        elif not outside and all(found.verdict == "PROVED" for found in founds):
            said = f"no launch needs {them}"
        else:
            said = f"no launch that was tried needs {them}"
        cost = sum(seconds.get(key, 0.0) for key in keys)
        waste = f", {cost:.2f} s of warm-up" if cost else ""
        why = f"; `{field}` is never {' or '.join(values)}" if field else ""
        yield Finding(
            "UNREACHED",
            name,
            f"{name}: {len(keys)} of {total} planned keys ({len(keys) / total:.0%}{waste}): "
            f"{said}{why}",
            field=field,
            warmed="\n".join((*keys[:SHOWN], *(["..."] if len(keys) > SHOWN else []))),
            advice="leave these keys out of the declaration, or add the launches that need them",
            owners=owners,
        )


def _causes(
    unreached: Sequence[str], needed: Iterable[str]
) -> Iterable[tuple[str, list[str], list[str]]]:
    """Unreached keys grouped by a field whose values no needed key has: (field, values, keys).

    A key has the cause that it shares with most others; without one the field is empty.
    """
    used: dict[str, set[str]] = {}
    for key in needed:
        for field, value in fields_of(key).together().items():
            used.setdefault(field, set()).add(value)
    taken = {key: fields_of(key).together() for key in unreached}
    unused = {
        key: [f for f, value in fields.items() if f in used and value not in used[f]]
        for key, fields in taken.items()
    }
    counts = Counter(field for fields in unused.values() for field in fields)
    groups: dict[str, list[str]] = {}
    for key, fields in unused.items():
        groups.setdefault(max(fields, key=lambda f: counts[f], default=""), []).append(key)
    for field, keys in groups.items():
        yield field, list(dict.fromkeys(taken[key].get(field, "") for key in keys)), keys


def _never_dispatched(
    name: str, founds: Sequence[Found], own: Sequence[PlanItem], reached: set[str]
) -> Iterable[Finding]:
    """Declared keys that dispatch gives at no point, although their binaries are needed."""
    if not all(found.walked and found.verdict == "PROVED" for found in founds):
        return
    given = {text for found in founds for text in found.declared}
    if not given:
        return
    never = [
        entry.declared or ""
        for entry in own
        if entry.backend_key in reached and (entry.declared or "").partition(" {")[0] not in given
    ]
    never = list(dict.fromkeys(never))
    if never:
        yield Finding(
            "UNREACHED",
            name,
            f"{name}: dispatch never gives {len(never)} of its declared keys, whose binaries "
            f"other keys share: {', '.join(never[:SHOWN])}",
            warmed="\n".join(never),
            advice="declare the keys that dispatch gives",
        )


def _distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Each finding once; of those about one field of a kernel's keys the first."""
    kept: dict[object, Finding] = {}
    for one in findings:
        is_key = one.kind in ("KEY-UNSTABLE", "KEY-INCOMPLETE") and one.field
        kept.setdefault((one.kind, one.kernel, one.field) if is_key else one, one)
    return list(kept.values())
