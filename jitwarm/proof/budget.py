"""BUDGET: spaces of keys that grow with what a client sends, and plans that cost too much."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from jitwarm.backends.keyfields import fields_of
from jitwarm.findings import Finding
from jitwarm.proof.envelope import Ints
from jitwarm.proof.found import Found

DISTINCT = 64  # values of one compile-time argument; powers of two up to 2**31 are 32
KEYS = 1_000  # planned keys of one kernel


def budget_findings(
    name: str,
    founds: Sequence[Found],
    planned: Collection[str],
    reached: Collection[str],
    seconds: Mapping[str, float],
    budget: int,
) -> Iterable[Finding]:
    """Compile-time values that follow a parameter, and a plan of more than `budget` keys."""
    for found in founds:
        yield from _growing(name, found)
    if len(planned) > budget:
        used = sum(key in reached for key in planned)
        cost = sum(seconds.get(key, 0.0) for key in planned)
        took = f", {cost:.1f} s" if cost else ""
        yield Finding(
            "BUDGET",
            name,
            f"{name}: {len(planned)} keys are planned{took}, {budget} are allowed; launches reach "
            f"{used} of them ({used / len(planned):.1%})",
            advice="declare the combinations that launches reach, not the product of all fields",
        )


def _growing(name: str, found: Found) -> Iterable[Finding]:
    """Fields whose number of values grows with the range of a parameter."""
    values: dict[str, dict[str, list[int]]] = {}
    integers = [n for n, d in found.envelope.parameters.items() if isinstance(d, Ints)]
    if not integers:
        return
    for place, key in enumerate(found.smallest):
        fields = fields_of(key)
        for field, value in fields.fields.items():
            if not fields.is_triton or value.startswith("constexpr="):
                values.setdefault(field, {}).setdefault(value, []).append(place)
    points = list(found.smallest.values())
    for field, places in values.items():
        if len(places) <= DISTINCT:
            continue
        driver = max(integers, key=lambda n: len({points[p[0]][n] for p in places.values()}))
        driven = len({points[p[0]][driver] for p in places.values()})
        if 2 * driven <= len(places):
            continue
        domain = found.envelope.parameters[driver]
        yield Finding(
            "BUDGET",
            name,
            f"{name}: `{field}` has at least {len(places)} values, one for nearly every value of "
            f"{driver} ({domain}), and each is another binary",
            field=field,
            advice=f"round `{field}` up to few values, or pass it as a run-time argument",
            site=found.envelope.site,
            owners=found.envelope.owners,
        )
