"""KEY-UNSTABLE: keys that depend on what was launched before, that hold something compared by
identity, or that a dictionary takes for one although they are two.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from jitwarm import keys
from jitwarm.errors import KeyValueError
from jitwarm.findings import Finding
from jitwarm.proof.compare import unstable_finding
from jitwarm.proof.found import Found
from jitwarm.proof.keyfunction import BACKEND, KeyFunction
from jitwarm.proof.plan import ProofPlan
from jitwarm.proof.search import SEED
from jitwarm.proof.space import Point, point_text, value_text

# Launches that are evaluated again in other orders; a key function of one's own costs nothing.
AGAIN = 64
AGAIN_FUNCTION = 5_000
_FIELD = re.compile(r"(?:argument|field|option) '(\w+)'")


def unstable_findings(name: str, founds: Sequence[Found], planned: ProofPlan) -> Iterable[Finding]:
    """The first point of each envelope whose keys change when points come in another order; and of
    a `KeyFunction` each field whose values are compared by identity, or are 1 and True.
    """
    for found in founds:
        changed = _changed(found)
        if changed is not None:
            point, before, after, how = changed
            yield replace(
                unstable_finding(name, before, after, how, point_text(point)),
                site=found.envelope.site,
                owners=found.envelope.owners,
            )
    functions = [found for found in founds if found.reach.backend == BACKEND]
    if functions:
        function = functions[0].reach.kernel
        yield from _identities(function, planned.values)
        given = [key for found in functions for key, _ in found.declared.values()]
        yield from _equal(function, [*planned.values, *given])


def _changed(
    found: Found,
) -> tuple[Point, tuple[str, ...], tuple[str, ...], str] | None:
    limit = AGAIN_FUNCTION if found.reach.backend == BACKEND else AGAIN
    chosen = found.tried[:: max(1, len(found.tried) // limit)]
    shuffled = list(chosen)
    random.Random(SEED).shuffle(shuffled)
    worst = None
    for how, points in (("backwards", chosen[::-1]), ("in another order", shuffled)):
        for point, before in points:
            after = _keys(found, point)
            if after is not None and after != before:
                worst = (point, before, after, how)
        if worst is not None:
            return worst
    return None


def _keys(found: Found, point: Point) -> tuple[str, ...] | None:
    try:
        arguments = found.envelope.launch(**point)
        return () if arguments is None else found.reach.at(arguments).keys
    except Exception:  # told where the point was tried first
        return None


def _identities(function: KeyFunction, declared: Iterable[Any]) -> Iterable[Finding]:
    """One for each field of the keys `declared` that is compared by identity."""
    for key in declared:
        for field, value in function.fields(key).items():
            try:
                keys.canonical(value)
            except KeyValueError as error:
                yield _no_value(function.name, field, error)


def refused_findings(
    name: str, failures: Iterable[tuple[str, Exception]], told: Iterable[Finding]
) -> Iterable[Finding]:
    """The same for declarations of a kernel that were refused for such a value, unless what was
    `told` says it.
    """
    if any(one.kind == "KEY-UNSTABLE" and one.kernel == name for one in told):
        return
    for who, error in failures:
        if who == name and isinstance(error, KeyValueError):
            named = _FIELD.search(str(error))
            yield _no_value(name, named[1] if named else "", error)


def _no_value(name: str, field: str, error: KeyValueError) -> Finding:
    return Finding(
        "KEY-UNSTABLE",
        name,
        f"{name}: {f'field `{field}` of its key' if field else 'its key'} is not a value: {error}",
        field=field,
        advice="put a number, a string, a dtype or a tuple of these into the key",
    )


def _equal(function: KeyFunction, given: Iterable[Any]) -> Iterable[Finding]:
    """Keys that Python takes for one although their values are not the same: 1, True and 1.0. A
    cache that is a dictionary serves whichever was built first.
    """
    first: dict[Any, Any] = {}
    told = set()
    for key in given:
        try:
            other = first.setdefault(key, key)
        except TypeError:  # it cannot be hashed, so no dictionary has it
            continue
        one, two = (
            {name: value_text(value) for name, value in function.fields(each).items()}
            for each in (other, key)
        )
        names = [name for name in two if two[name] != one.get(name)]
        if names and tuple(names) not in told:
            told.add(tuple(names))
            warmed = ", ".join(one.get(name, "absent") for name in names)
            seen = ", ".join(two[name] for name in names)
            yield Finding(
                "KEY-UNSTABLE",
                function.name,
                f"{function.name}: a dictionary takes {warmed} and {seen} for one key, and "
                "serves whichever was built first",
                field=", ".join(names),
                warmed=warmed,
                seen=seen,
                advice="use one type for this field",
            )
