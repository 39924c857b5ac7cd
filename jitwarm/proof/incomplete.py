"""KEY-INCOMPLETE: one key for two programs, keys whose inputs lead to another key, and integers
that their annotated type cuts off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from jitwarm.findings import Finding
from jitwarm.proof.compare import difference
from jitwarm.proof.found import Found
from jitwarm.proof.plan import ProofPlan
from jitwarm.proof.space import Point, point_text, value_text

ROUND_TRIP = "leads __call__ to another key"
# What the contract says of such a key: `block 16 instead of 4096, stride 1 instead of 2`.
_SAID = re.compile(ROUND_TRIP + r": (?P<fields>.*); put what dispatch needs .*\(key: (?P<key>.*)\)")
_FIELD = re.compile(r"(?:^|, )(?:(\w+) )?(\S.*?) instead of (.+?)(?=, \w+ \S.*? instead of |$)")


def incomplete_findings(
    name: str, founds: Sequence[Found], planned: ProofPlan
) -> Iterable[Finding]:
    """Of every key that the launches went through, and of every key that could not be planned."""
    for found in founds:
        yield from _programs(name, found)
        yield from _binaries(name, found)
        yield from _cut_off(name, found)
    yield from _round_trips(name, founds, planned)


def built_instead(name: str, founds: Sequence[Found], planned: ProofPlan) -> dict[str, None]:
    """The backend keys that the inputs of refused keys lead to, where launches need these keys:
    what a warm-up without that check builds under their names.
    """
    refused = {
        said["key"]
        for who, error in planned.failures
        if who == name and (said := _SAID.search(str(error)))
    }
    return {
        need: None
        for found in founds
        for text, (key, _) in found.declared.items()
        if text in refused
        for need in found.reach.built(key)
    }


def _round_trips(name: str, founds: Sequence[Found], planned: ProofPlan) -> Iterable[Finding]:
    """Keys whose own inputs lead to another key: the first of each set of fields."""
    broken: dict[str, tuple[Found, str]] = {}
    for found in founds:
        for key, point in found.declared.values():
            problem = found.reach.round_trip(key)
            if ROUND_TRIP in problem:
                broken.setdefault(problem, (found, point_text(point)))
    for who, error in planned.failures:
        if who == name and ROUND_TRIP in str(error):
            broken.setdefault(str(error), (founds[0], ""))
    alike: dict[str, list[tuple[str, list[tuple[str, str, str]]]]] = {}
    for problem in broken:
        said = _SAID.search(problem)
        fields = _FIELD.findall(said["fields"]) if said else []
        names = ", ".join(field or "key" for field, _, _ in fields)
        alike.setdefault(names, []).append((problem, fields))
    for names, ones in alike.items():
        (problem, fields), *others = ones
        found, smallest = broken[problem]
        more = f"; so do {len(others)} more of its keys" if others else ""
        yield Finding(
            "KEY-INCOMPLETE",
            name,
            f"{problem}{more}",
            field=names,
            warmed=", ".join(there for _, there, _ in fields),
            seen=", ".join(here for _, _, here in fields),
            smallest=smallest,
            site=found.envelope.site,
            owners=found.envelope.owners,
            advice="warmup_inputs(key) has to return inputs that dispatch to the same key",
        )


def _programs(name: str, found: Found) -> Iterable[Finding]:
    """Keys of a `KeyFunction` under which two programs would be built: the first for each set of
    inputs that changes the program and not the key.
    """
    told = set()
    for key, programs in found.programs.items():
        first, *others = programs.values()
        for other in others:
            one, two = _inputs(found, first), _inputs(found, other)
            names = [n for n in two if two[n] != one.get(n)]
            if tuple(names) in told:
                continue
            told.add(tuple(names))
            yield Finding(
                "KEY-INCOMPLETE",
                name,
                f"{name}: {len(programs)} programs are built under the key {key}; whichever is "
                f"first is served to all ({point_text(first)} and {point_text(other)})",
                field=", ".join(names),
                warmed=", ".join(one.get(n, "absent") for n in names),
                seen=", ".join(two[n] for n in names),
                smallest=point_text(other),
                site=found.envelope.site,
                owners=found.envelope.owners,
                advice="put everything that the program depends on into the key",
            )


def _inputs(found: Found, point: Point) -> dict[str, str]:
    inputs = found.envelope.launch(**point) or {}
    return {name: value_text(value) for name, value in inputs.items()}


def _binaries(name: str, found: Found) -> Iterable[Finding]:
    """Declared keys whose launches need different binaries: the key does not say which."""
    told = set()
    for text, ways in found.dispatched.items():
        if len(ways) < 2:
            continue
        first, *others = ways
        for other in others:
            fields = difference(first, other).field
            if fields in told:
                continue
            told.add(fields)
            yield Finding(
                "KEY-INCOMPLETE",
                name,
                f"{name}: launches with the key {text} need two binaries, which differ in "
                f"`{fields}`; warm-up makes one of them",
                field=fields,
                warmed=" ".join(first),
                seen=" ".join(other),
                smallest=point_text(ways[other]),
                site=found.envelope.site,
                owners=found.envelope.owners,
                advice=f"let `dispatch` tell `{fields}` apart in the key",
            )


def _cut_off(name: str, found: Found) -> Iterable[Finding]:
    """Annotated integers that get a value which their type does not hold: Triton does not widen
    them, so two values are one key.
    """
    for argument, (width, value, point) in found.cut_off.items():
        yield Finding(
            "KEY-INCOMPLETE",
            name,
            f"{name}: `{argument}` is annotated as {width}, which does not hold {value}: the "
            "kernel gets another number, under the same key",
            field=argument,
            warmed=width,
            seen=str(value),
            smallest=point_text(point),
            site=found.envelope.site,
            owners=found.envelope.owners,
            advice=f"annotate `{argument}: tl.int64`",
        )
