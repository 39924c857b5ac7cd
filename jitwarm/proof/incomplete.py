"""KEY-INCOMPLETE: one key for two programs, and keys whose inputs lead to another key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jitwarm.findings import Finding
from jitwarm.proof.planned import Planned
from jitwarm.proof.reach import differing_fields
from jitwarm.proof.search import Found
from jitwarm.proof.space import point_text

ROUND_TRIP = "leads __call__ to another key"


def incomplete_findings(name: str, founds: Sequence[Found], planned: Planned) -> Iterable[Finding]:
    """Of every key that the launches went through, and of every key that could not be planned."""
    for found in founds:
        yield from _programs(name, found)
        yield from _binaries(name, found)
    yield from _round_trips(name, founds, planned)


def _round_trips(name: str, founds: Sequence[Found], planned: Planned) -> Iterable[Finding]:
    """Keys whose own inputs lead to another key: one finding, about the first of them."""
    broken: dict[str, tuple[str, Found, str]] = {}
    for found in founds:
        for text, (key, point) in found.declared.items():
            problem = found.reach.round_trip(key)
            if ROUND_TRIP in problem:
                broken.setdefault(problem, (text, found, point_text(point)))
    for who, error in planned.failures:
        if who == name and ROUND_TRIP in str(error):
            broken.setdefault(str(error), ("", founds[0], ""))
    for problem, (text, found, smallest) in list(broken.items())[:1]:
        more = f"; so do {len(broken) - 1} more of its keys" if len(broken) > 1 else ""
        yield Finding(
            "KEY-INCOMPLETE",
            name,
            f"{problem}{more}",
            seen=text,
            smallest=smallest,
            site=found.envelope.site,
            owners=found.envelope.owners,
            advice="warmup_inputs(key) has to return inputs that dispatch to the same key",
        )


def _programs(name: str, found: Found) -> Iterable[Finding]:
    """Keys of a `KeyFunction` under which two programs would be built."""
    for key, programs in found.programs.items():
        if len(programs) > 1:
            one, two = list(programs.values())[:2]
            yield Finding(
                "KEY-INCOMPLETE",
                name,
                f"{name}: {len(programs)} programs are built under one key; whichever is first is "
                f"served to all ({point_text(one)} and {point_text(two)})",
                seen=key,
                smallest=point_text(two),
                site=found.envelope.site,
                owners=found.envelope.owners,
                advice="put everything that the program depends on into the key",
            )


def _binaries(name: str, found: Found) -> Iterable[Finding]:
    """Declared keys whose launches need different binaries: the key does not say which."""
    told = set()
    for text, ways in found.dispatched.items():
        if len(ways) < 2:
            continue
        first, *others = ways
        for other in others:
            fields = differing_fields(first, other)
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
