"""Splitting against brute force, on envelopes that are closed downwards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitwarm.proof.classes import Coder
from jitwarm.proof.envelope import Envelope, Ints, Values
from jitwarm.proof.forms import affine, next_power_of_two, pointer
from jitwarm.proof.space import Space
from jitwarm.proof.split import candidates, frontier

ROW = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 48, 100, 128])


@st.composite
def affines(draw, names, *, negative=True, most=2):
    """Row sizes and starts: a base, and a coefficient for some of the parameters."""
    used = draw(st.lists(st.sampled_from(names), min_size=1, max_size=most, unique=True))
    base = draw(st.integers(-40 if negative else 0, 300))
    return affine(base, **{name: draw(ROW) for name in used})


@st.composite
def problems(draw):
    """Parameters, a downward-closed `where`, and forms with their kind of argument."""
    count = draw(st.integers(1, 2))
    names = ["d", "p"][:count]
    low = draw(st.integers(0, 1))
    high = draw(st.integers(low, 700 if count == 2 else 5_000))
    parameters = {name: Ints(low, high) for name in names}
    most = draw(st.integers(count * low, count * high))
    weight = draw(st.integers(1, 3))
    where = None
    if count == 2:
        where = lambda d, p: weight * d + p <= max(most, (weight + 1) * low)
    forms = {}
    kinds = ["int", "power", "constant power", "pointer"]
    # A block size of a sum stands alone: the search says SEARCHED of several.
    of_a_sum = draw(st.booleans())
    for index in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds))
        if of_a_sum and "power" in kind:
            kinds = ["int", "pointer"]
        if kind == "int":
            forms[f"a{index}"] = (draw(affines(names)), False)
        elif kind == "pointer":
            length = draw(st.one_of(st.just(affine(1)), affines(names, negative=False)))
            forms[f"a{index}"] = (pointer(offset=draw(affines(names)), length=length), False)
        else:
            form = next_power_of_two(draw(affines(names, most=2 if of_a_sum else 1)))
            forms[f"a{index}"] = (form, kind != "power")
    return parameters, where, forms


def signatures(space, tables, coders):
    found = set()
    for table in tables:
        columns = space.integers(table)
        codes = [coder.codes(columns) for coder in coders]
        found |= set(map(tuple, np.stack(codes, axis=1).tolist())) if len(table) else set()
    return found


def both(parameters, where, forms):
    """The signatures of all points, and those of the split ones; and how many are split."""
    plain = {name: form for name, (form, _) in forms.items()}
    space = Space(Envelope(None, "", parameters, dict, where=where, forms=plain))
    coders = [Coder.of(f, parameters, is_constant=c) for f, c in forms.values()]
    values = candidates(space, plain)
    split = [*space.tables(values), *frontier(space, values, plain)]
    every = signatures(space, space.tables(space.every()), coders)
    return every, signatures(space, split, coders), len(np.unique(np.concatenate(split), axis=0))


@settings(max_examples=80)
@given(problems())
def test_split_points_have_every_signature(problem):
    every, split, _ = both(*problem)
    assert split == every


@pytest.mark.parametrize(("count", "few"), [(2, 1053), (3, 12_005)])  # of 20,301 and 176,851
def test_few_points_stand_for_many(count, few):
    names = ["decodes", "prefills", "more"][:count]
    parameters = dict.fromkeys(names, Ints(0, 200 if count == 2 else 100))
    forms = {
        "start": (pointer(offset=affine(decodes=4), length=affine(prefills=1)), False),
        "BLOCK": (next_power_of_two(affine(prefills=1)), True),
        "rows": (affine(decodes=64), False),
    }
    where = (
        (lambda decodes, prefills: decodes + prefills <= 200)
        if count == 2
        else (lambda decodes, prefills, more: decodes + prefills + more <= 100)
    )
    every, split, points = both(parameters, where, forms)
    assert split == every
    assert points == few


def test_the_limits_of_32_bits_are_found_in_the_value_not_in_the_parameter():
    parameters = {"tokens": Ints(1, 2**24), "heads": Ints(1, 3)}
    forms = {"numel": affine(5, tokens=576, heads=7)}
    space = Space(Envelope(None, "", parameters, dict, forms=forms))
    kept = candidates(space, forms)[0]
    first_wide = -(-(2**31 - 5 - 7) // 576)
    assert {first_wide - 1, first_wide} <= set(kept.tolist())
    assert len(kept) < 2_000


def test_a_parameter_without_a_form_gets_fewer_values_where_the_product_is_large():
    parameters = {"free": Ints(0, 10_000), "used": Ints(0, 10_000), "flag": Values(False, True)}
    forms = {"n": affine(used=1)}
    space = Space(Envelope(None, "", parameters, dict, forms=forms))
    free, used, flag = candidates(space, forms)
    assert flag.tolist() == [0, 1]
    least = candidates(space, forms, most=1)
    assert least[0].tolist() == [0, 1, 9_999, 10_000]
    assert len(least[0]) < len(free) < len(used) == len(least[1])
