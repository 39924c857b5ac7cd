"""Values and their text: types apart, no identity, the same in every process."""

from __future__ import annotations

import dataclasses
import enum
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from jitwarm.declare import TensorSpec
from jitwarm.errors import KeyValueError
from jitwarm.keys import canonical, exact, key_id, placeholder


class Plain(enum.Enum):
    A = 1


class Number(enum.IntEnum):
    A = 1


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Pair(NamedTuple):
    left: object
    right: object


class Row(tuple):
    __slots__ = ()


class Size(int):
    pass


@dataclass(frozen=True)
class Key:
    block: int
    flag: bool = False
    shared: ClassVar[dict] = {}
    derived: dataclasses.InitVar[int] = 0


@dataclass(frozen=True)
class Other:
    block: int
    flag: bool = False


@dataclass
class Mutable:
    block: int


TEXTS = [
    (1, "1"),
    (True, "True"),
    (1.0, "1.0"),
    ("1", "'1'"),
    (b"1", "b'1'"),
    (None, "None"),
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (0, "0"),
    (False, "False"),
    (math.nan, "nan"),
    (math.inf, "inf"),
    (2**70, "1180591620717411303424"),
    ((), "()"),
    ((1,), "(1,)"),
    ((1, (2.0, "x")), "(1, (2.0, 'x'))"),
    (frozenset({"b", "a", 1}), "{'a', 'b', 1}"),
    (frozenset(), "{}"),
    (Pair(1, None), "Pair(left=1, right=None)"),
    (Row((1, 2)), "Row((1, 2))"),
    (torch.Size((1, 2)), "Size((1, 2))"),
    (Plain.A, "Plain.A"),
    (Number.A, "Number.A"),
    (Bits.A | Bits.B, "Bits.A|B"),
    (Bits(0), "Bits.0"),
    (Key(1), "Key(block=1, flag=False)"),
    (Key(True), "Key(block=True, flag=False)"),
    (Other(1), "Other(block=1, flag=False)"),
    (Key([1, [Other([])]]), "Key(block=[1, [Other(block=[], flag=False)]], flag=False)"),
    (Key([True]), "Key(block=[True], flag=False)"),
    (Key((1,)), "Key(block=(1,), flag=False)"),
    (Key([1]), "Key(block=[1], flag=False)"),
    (int, "builtins.int"),
    (Size(3), "Size(3)"),
    (np.int64(1), "np.int64(1)"),
    (np.int32(1), "np.int32(1)"),
    (np.float64(1), "np.float64(1.0)"),
    (np.float64(-0.0), "np.float64(-0.0)"),
    (np.bool_(True), "np.bool(True)"),
    (np.str_("x"), "np.str('x')"),
    (torch.float32, "torch.float32"),
    (torch.bfloat16, "torch.bfloat16"),
    (tl.float32, "tl.fp32"),
    (tl.int1, "tl.int1"),
    (tl.constexpr(7), "constexpr(7)"),
    (tl.constexpr(True), "constexpr(True)"),
    (tl.constexpr(1), "constexpr(1)"),
    (TensorSpec("int32"), "tensor(int32, aligned)"),
]


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_text(value, text):
    assert canonical(value) == text


def test_all_of_them_differ_in_both_forms():
    assert len({canonical(value) for value, _ in TEXTS}) == len(TEXTS)
    assert len({exact(value) for value, _ in TEXTS}) == len(TEXTS)


def test_equal_values_are_equal_in_both_forms():
    for one, other in (
        (math.nan, float("nan")),
        (Key(1), Key(1, derived=5)),
        (TensorSpec("int32", init=0), TensorSpec(torch.int32, init=3)),
        (frozenset("ab"), frozenset("ba")),
        (np.float32(math.nan), np.float32(math.nan)),
        (tl.constexpr((1, 2)), tl.constexpr((1, 2))),
    ):
        assert canonical(one) == canonical(other)
        assert exact(one) == exact(other)
        assert hash(exact(one)) == hash(exact(other))


REFUSED = [
    object(),
    lambda: 0,
    [1],
    {},
    {1},
    Mutable(1),
    (1, [2]),
    Key({}),
    Key([{}]),
    Key([Mutable(1)]),
    Key((1, [2])),
    np.zeros(1),
    np.array(1),
    np.longdouble(1),
    torch.zeros(1),
    tl.constexpr(object()),
    frozenset({(object(),)}),
]


@pytest.mark.parametrize("value", REFUSED, ids=[type(value).__name__ for value in REFUSED])
@pytest.mark.parametrize("form", [canonical, exact])
def test_what_is_no_value_is_refused(form, value):
    with pytest.raises(KeyValueError, match="compared by identity|is not frozen|can change"):
        form(value)


def test_the_refusal_names_the_type():
    with pytest.raises(KeyValueError, match="a key holds a dict, which can change: use a tuple"):
        canonical(Key([{}]))
    with pytest.raises(KeyValueError, match="Mutable in a key is not frozen"):
        exact(Mutable(1))


@dataclass(frozen=True)
class Unset:
    derived: int = dataclasses.field(init=False)


@pytest.mark.parametrize("form", [canonical, exact])
def test_a_dataclass_that_cannot_be_taken_apart_is_refused(form):
    with pytest.raises(KeyValueError, match="Unset in a key has no value in its field 'derived'"):
        form(Unset())
    ring = Key([])
    ring.block.append(ring)
    with pytest.raises(KeyValueError, match="^Key in a key holds itself"):
        form(ring)


@pytest.mark.parametrize("form", [canonical, exact])
def test_an_object_that_claims_every_attribute_is_refused(form):
    with pytest.raises(KeyValueError, match="compared by identity"):
        form(MagicMock())


class Shown:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        if self.text is None:
            raise LookupError
        return self.text.format(id(self))


@pytest.mark.parametrize("text", [None, "<thing at {:#x}>", "<thing id='{}'>", "[<y at 0x7f01>]"])
def test_a_placeholder_without_a_repr_of_value_is_the_type(text):
    assert placeholder(Shown(text)) == f"<{__name__}.Shown>"


def test_placeholders_of_other_values_differ():
    assert placeholder([1]) == f"<builtins.list#{key_id('[1]')[:8]}>"
    assert placeholder(Shown("a")) == placeholder(Shown("a")) != placeholder(Shown("b"))


def nested():
    plain = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.sampled_from([0.0, -0.0, 1.0, 2.0, math.nan, math.inf]),
        st.sampled_from(["", "1", "a", "'", "\\"]),
        st.sampled_from([b"", b"1"]),
        st.sampled_from([Plain.A, Number.A, Bits.A, torch.float32, tl.float32, int, bool]),
        st.sampled_from([np.int64(1), np.float64(1), np.float64(0), np.float64(-0.0), Size(1)]),
        st.sampled_from([tl.constexpr(value) for value in (1, True, 1.0, 0.0, -0.0)]),
    )
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            st.tuples(inner),
            st.tuples(inner, inner),
            st.builds(Pair, inner, inner),
            st.builds(Key, inner, inner),
            st.builds(Other, inner, inner),
            st.builds(Key, st.lists(inner, max_size=2)),
            st.frozensets(inner.filter(hashable), max_size=2),
        ),
        max_leaves=4,
    )


def hashable(value):
    try:
        return hash(value) is not None
    except TypeError:
        return False


@given(nested(), nested())
def test_both_forms_tell_the_same_values_apart(one, other):
    assert (exact(one) == exact(other)) == (canonical(one) == canonical(other))
    assert canonical(one) == canonical(one)


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_texts_do_not_depend_on_the_hash_seed(fresh_process, seed):
    text = (
        "from jitwarm.keys import canonical, key_id\n"
        "text = canonical(frozenset({'a', 'b', 'c', 1, (2, frozenset('xyz'))}))\n"
        "print(text, key_id(text))"
    )
    expected = "{'a', 'b', 'c', (2, {'x', 'y', 'z'}), 1}"
    assert fresh_process(text, PYTHONHASHSEED=seed) == f"{expected} {key_id(expected)}\n"


def test_ids_are_sixteen_digits_of_the_hash():
    assert key_id("") == "e3b0c44298fc1c14"
    assert key_id("ü") != key_id("u")
