"""Representatives of integer classes, and pointer variants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitwarm import keys
from jitwarm.contract import TritonPointerInputVariant, triton_scalar_specialization_rep
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import ScalarRangeError, WrongKindError


@pytest.mark.parametrize(
    ("value", "representative"),
    [
        (-(2**63), 2**31),
        (-(2**31) - 1, 2**31 + 1),
        (-(2**31), 16),
        (-1, 2),
        (0, 16),
        (1, 1),
        (2, 2),
        (16, 16),
        (17, 2),
        (2**31 - 1, 2),
        (2**31, 2**31),
        (2**63 - 1, 2**31 + 1),
        (2**63, 2**63),
        (2**64 - 1, 2**63 + 1),
    ],
)
def test_boundaries(value, representative):
    assert triton_scalar_specialization_rep(value) == representative


@pytest.mark.parametrize("value", [-(2**63) - 1, 2**64])
def test_outside_every_integer_type(value):
    with pytest.raises(OverflowError) as caught:
        triton_scalar_specialization_rep(value)
    assert isinstance(caught.value, ScalarRangeError)


def test_other_integers_and_bools():
    assert triton_scalar_specialization_rep(np.int64(48)) == 16
    with pytest.raises(WrongKindError):
        triton_scalar_specialization_rep(True)
    with pytest.raises(TypeError):
        triton_scalar_specialization_rep(1.0)


def class_of(value):
    """Triton's class of an integer, spelled out: equal to one, its type, divisible by 16."""
    if value == 1:
        return "1"
    kind = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
    return kind, value % 16 == 0


@given(st.integers(-(2**63), 2**64 - 1))
def test_representative_is_of_the_same_class_and_represents_itself(value):
    representative = triton_scalar_specialization_rep(value)
    assert class_of(representative) == class_of(value)
    assert triton_scalar_specialization_rep(representative) == representative


@given(st.integers(-(2**63), 2**64 - 1), st.integers(-(2**63), 2**64 - 1))
def test_one_representative_for_each_class(left, right):
    same = triton_scalar_specialization_rep(left) == triton_scalar_specialization_rep(right)
    assert same == (class_of(left) == class_of(right))


def test_pointer_variant_is_a_value():
    variant = TritonPointerInputVariant.from_alignment(x=True, out=False)
    assert variant.alignments == (("x", True), ("out", False))
    assert (variant.is_aligned("x"), variant.is_aligned("out")) == (True, False)
    assert variant.pointer("out", "int32", (4,)) == TensorSpec("int32", aligned=False, shape=(4,))
    assert variant.pointer("x", "int32") == TensorSpec("int32")
    assert variant != TritonPointerInputVariant.from_alignment(out=False, x=True)
    assert len({variant, TritonPointerInputVariant.from_alignment(x=1, out=0)}) == 1
    assert (
        keys.canonical(variant)
        == "TritonPointerInputVariant(alignments=(('x', True), ('out', False)))"
    )
    with pytest.raises(KeyError, match="no pointer 'y' in this variant; it holds x, out"):
        variant.is_aligned("y")
