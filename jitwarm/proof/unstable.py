"""KEY-UNSTABLE: keys that depend on what was launched before."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from jitwarm.findings import Finding
from jitwarm.proof.reach import differing_fields
from jitwarm.proof.search import SEED, Found
from jitwarm.proof.space import Point, point_text

# Launches that are evaluated again in other orders; a key function of one's own costs nothing.
AGAIN = 64
AGAIN_FUNCTION = 5_000


def unstable_findings(name: str, founds: Sequence[Found]) -> Iterable[Finding]:
    """The first point of each envelope whose keys change when points come in another order."""
    for found in founds:
        changed = _changed(found)
        if changed is None:
            continue
        point, before, after, order = changed
        yield Finding(
            "KEY-UNSTABLE",
            name,
            f"{name}: the key of one launch depends on the launches before it: evaluated {order}, "
            "it is another one",
            field=differing_fields(before, after),
            warmed=" ".join(before),
            seen=" ".join(after),
            smallest=point_text(point),
            site=found.envelope.site,
            owners=found.envelope.owners,
            advice="compute the key from the arguments of the launch alone",
        )


def _changed(
    found: Found,
) -> tuple[Point, tuple[str, ...], tuple[str, ...], str] | None:
    limit = AGAIN_FUNCTION if found.programs or found.reach.backend == "function" else AGAIN
    chosen = found.tried[:: max(1, len(found.tried) // limit)]
    shuffled = list(chosen)
    random.Random(SEED).shuffle(shuffled)
    worst = None
    for order, points in (("backwards", chosen[::-1]), ("in another order", shuffled)):
        for point, before in points:
            after = _keys(found, point)
            if after is not None and after != before:
                worst = (point, before, after, order)
        if worst is not None:
            return worst
    return None


def _keys(found: Found, point: Point) -> tuple[str, ...] | None:
    try:
        arguments = found.envelope.launch(**point)
        return () if arguments is None else found.reach.at(arguments).keys
    except Exception:  # told where the point was tried first
        return None
