"""The class function against Triton's own binder."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jitwarm.backends.triton.binder import bind
from jitwarm.backends.triton.keytext import parse_key
from jitwarm.declare import TensorSpec
from jitwarm.proof.classes import OUTSIDE, Coder, bounds, int_class, int_classes
from jitwarm.proof.envelope import Ints
from jitwarm.proof.forms import affine, next_power_of_two, pointer

sys.path.insert(0, str(Path(__file__).parent))

import proof_kernels

EDGES = [
    edge + step
    for edge in (-(2**63), -(2**31), 0, 16, 2**31, 2**32, 2**63, 2**64)
    for step in (-17, -16, -1, 0, 1, 15, 16)
    if -(2**63) <= edge + step < 2**64
]
integers = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**64 - 1))
once = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def text_of(value, name="n"):
    """What Triton's binder makes of an integer argument."""
    given = {"n": 2, "m": 2, "many": 2} | {name: value}
    spec = TensorSpec("int32")
    return parse_key(bind(proof_kernels.numbers, (), given | {"x_ptr": spec, "y_ptr": spec}).text)[
        1
    ][name]


@pytest.mark.triton
@once
@given(one=integers, other=integers)
@example(one=1, other=2)
@example(one=2**31, other=2**31 - 16)
@example(one=2**63, other=2**63 - 16)
def test_two_integers_are_one_class_to_the_binder_exactly_if_they_are_here(stub, one, other):
    assert (text_of(one) == text_of(other)) == (int_class(one) == int_class(other))


@pytest.mark.triton
@once
@given(one=integers, other=integers, name=st.sampled_from(["m", "many"]))
def test_arguments_with_fewer_classes_are_never_split_finer(stub, one, other, name):
    if int_class(one) == int_class(other):
        assert text_of(one, name) == text_of(other, name)


def test_every_class_has_a_number_of_its_own():
    representatives = [1, 2, 16, 2**31 + 1, 2**31, 2**63 + 1, 2**63]
    assert sorted(map(int_class, representatives)) == list(range(7))
    assert int_class(2**64) == int_class(-(2**63) - 1) == OUTSIDE


@given(st.lists(st.integers(-(2**62), 2**62), max_size=20))
def test_arrays_of_int64_and_of_python_integers_agree(values):
    assert (
        int_classes(np.array(values, np.int64)).tolist()
        == int_classes(np.array(values, object)).tolist()
    )


@pytest.mark.triton
@pytest.mark.parametrize("offset", [0, 4, 12, 16, 20])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_an_empty_view_is_aligned_at_any_offset(stub, offset, length):
    spec = TensorSpec("int32", aligned=offset % 16 == 0, shape=(length,))
    given = {"n": 2, "m": 2, "many": 2, "x_ptr": spec, "y_ptr": TensorSpec("int32")}
    text = parse_key(bind(proof_kernels.numbers, (), given).text)[1]["x_ptr"]
    form = pointer(offset=affine(offset), length=affine(length))
    assert form.at({"p": np.zeros(1, np.int64)}).tolist() == [text == "*i32/D"]


@given(base=st.integers(-9, 9), p=st.integers(-5, 5), q=st.integers(-5, 5))
def test_bounds_are_the_extremes_of_a_form(base, p, q):
    form = affine(base, p=p, q=q)
    parameters = {"p": Ints(-3, 4), "q": Ints(0, 6)}
    values = [base + p * a + q * b for a in range(-3, 5) for b in range(7)]
    assert bounds(form, parameters) == (min(values), max(values))


def test_next_powers_of_two():
    columns = {"p": np.array([-5, 0, 1, 2, 3, 4, 5, 2**30 + 1, 2**40])}
    form = next_power_of_two(affine(p=1))
    assert form.at(columns).tolist() == [1, 1, 1, 2, 4, 4, 8, 2**31, 2**40]
    coder = Coder.of(form, {"p": Ints(-5, 2**40)}, is_constant=True)
    assert coder.codes(columns).tolist() == [0, 0, 0, 1, 2, 2, 3, 31, 40]


@pytest.mark.parametrize(
    ("form", "is_constant", "actual", "agrees"),
    [
        (affine(p=1), False, 33, True),
        (affine(p=1), False, 32, False),
        (affine(p=1), False, True, False),
        (affine(p=1), True, 17, True),
        (affine(p=1), True, 33, False),
        (pointer(offset=affine(p=4), length=affine(1)), False, TensorSpec("int32"), False),
        (
            pointer(offset=affine(p=4), length=affine(1)),
            False,
            TensorSpec("int32", aligned=False),
            True,
        ),
        (pointer(offset=affine(p=4), length=affine(1)), False, None, True),
        (pointer(offset=affine(p=4), length=affine(1)), False, 17, False),
    ],
)
def test_a_form_is_compared_with_the_launch_by_class(form, is_constant, actual, agrees):
    coder = Coder.of(form, {"p": Ints(1, 64)}, is_constant=is_constant)
    assert coder.agrees({"p": np.array([17])}, actual) is agrees
