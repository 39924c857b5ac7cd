"""Few values of each parameter that stand for all of them, under forms.

The class of an affine value repeats with a period of at most 16 in each parameter, except where the
value is 0 or 1, crosses the limits of an integer type, or, for a block size, a power of two. So the
values kept of a parameter are the lowest, the first of each power-of-two bucket, the highest, and
those around each such crossing, each time a little more than a period. The product of these, with
the border that `where` draws, holds a point of each class of whole points where the envelope is
closed downwards (with a point every smaller one) and has at most one block size of a sum of several
parameters; tests/proof/test_split.py tries it against brute force. Of any other the search draws
whole points, and says SEARCHED where one shows a class that the product lacks. Only envelopes whose
points are too many to classify one by one are split at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from jitwarm.proof.classes import affines, bounds
from jitwarm.proof.envelope import Ints
from jitwarm.proof.forms import Affine, Form, NextPowerOfTwo, Pointer
from jitwarm.proof.space import Space, Table

PERIOD = 16
_LIMITS = (0, 1, -(2**31), 2**31, 2**63)


def candidates(
    space: Space, forms: Mapping[str, Form] | None, *, most: int = 1 << 62
) -> list[Table]:
    """Per parameter, in order, the values that stand for all; sorted.

    Without forms each parameter is taken to matter with the full period. A parameter that no form
    uses only has to have a value that `where` allows beside each of the others': it gets fewer
    values where the product would have more than `most` points.
    """
    for spread in (16, 2, 0):
        found = _candidates(space, forms, spread)
        if math.prod(map(len, found)) <= most:
            break
    return found


def _candidates(space: Space, forms: Mapping[str, Form] | None, spread: int) -> list[Table]:
    found: list[Table] = []
    for name, domain in space.parameters.items():
        if not isinstance(domain, Ints):
            found.append(np.arange(domain.size))
            continue
        used = [form for form in (forms or {}).values() if name in form.names]
        if forms is not None and not used:
            kept = set(_spread(domain, spread))
        else:
            period = _period(name, used) if forms is not None else PERIOD
            kept = set(_values(name, domain, used, period, space.parameters))
        inside = sorted(value for value in kept if domain.low <= value <= domain.high)
        found.append(np.array(inside, space.dtype))
    return found


def frontier(
    space: Space, values: list[Table], forms: Mapping[str, Form], *, most: int = 50_000
) -> Iterator[Table]:
    """Points at the border that `where` draws: per parameter and combination of the other's
    `values`, the greatest that is allowed, and a period below it.

    Two block sizes of different sums may be large together only there. At most `most` combinations
    a parameter, evenly.
    """
    for place, (name, domain) in enumerate(space.parameters.items()):
        used = [form for form in forms.values() if name in form.names]
        if not used or not isinstance(domain, Ints):
            continue
        others = [one if at != place else one[:1] for at, one in enumerate(values)]
        tables = list(space.tables(others))
        table = np.concatenate(tables)
        table = table[:: max(1, len(table) // most)]
        greatest = _greatest(space, table, place, domain)
        for step in range(_period(name, used) + 1):
            table[:, place] = np.maximum(greatest - step, domain.low)
            yield space.allowed(table)


def _greatest(space: Space, table: Table, place: int, domain: Ints) -> Any:
    """The greatest allowed value of one parameter in each row, if the allowed ones have no gap."""
    low = np.full(len(table), domain.low, space.dtype)
    high = np.full(len(table), domain.high, space.dtype)
    trial = table.copy()
    while (low < high).any():
        middle = low + (high - low + 1) // 2
        trial[:, place] = middle
        fits = space.holds(trial)
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return low


def _spread(domain: Ints, parts: int) -> Iterator[int]:
    """Both ends of a range, and unless `parts` is 0 steps of that many parts and powers of two."""
    yield from (domain.low, domain.low + 1, domain.high - 1, domain.high)
    if parts:
        width = domain.high - domain.low
        yield from (domain.low + width * step // parts for step in range(1, parts))
        yield from (domain.low + 2**exponent for exponent in range(1, width.bit_length()))


def _period(name: str, forms: Iterable[Form]) -> int:
    """After how many steps of a parameter the classes repeat: a coefficient of 4 takes 4 steps."""
    period = 1
    for form in forms:
        if isinstance(form, NextPowerOfTwo):
            continue
        # Of the length of a view only matters whether it is 0, which is a crossing.
        value = form.offset if isinstance(form, Pointer) else form
        period = max(period, PERIOD // math.gcd(value.coefficients.get(name, 0), PERIOD))
    return period


def _values(
    name: str, domain: Ints, forms: list[Form], period: int, parameters: Mapping[str, Any]
) -> Iterator[int]:
    low, high = domain.low, domain.high
    yield from range(low, min(low + 2 * period + 1, high + 1))
    yield from range(max(high - period, low), high + 1)
    for exponent in range(65):
        yield from range(2**exponent, 2**exponent + period)
        yield from range(-(2**exponent), -(2**exponent) + period)
    for form in forms:
        for part in affines(form):
            for crossing in _crossings(form, part, name, parameters):
                yield from range(crossing - 2 * period, crossing + 2 * period + 1)


def _crossings(form: Form, part: Affine, name: str, parameters: Mapping[str, Any]) -> Iterator[int]:
    """Where an affine value passes a limit, with the other parameters at their lowest, and with
    them at their highest.
    """
    factor = part.coefficients.get(name, 0)
    if not factor:
        return
    others = Affine(part.base, {n: f for n, f in part.coefficients.items() if n != name})
    limits: tuple[int, ...] = _LIMITS
    if isinstance(form, NextPowerOfTwo):
        limits = (*limits, *(2**exponent for exponent in range(1, 64)))
    lowest = part.base + sum(f * parameters[n].low for n, f in others.coefficients.items() if f)
    for rest in {lowest, *bounds(others, parameters)}:
        for limit in limits:
            yield (limit - rest) // factor
