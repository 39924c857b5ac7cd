"""The points of an envelope: order, `where`, counts, random ones."""

from __future__ import annotations

import numpy as np
import pytest

from jitwarm.errors import DeclarationError, EmptySpaceError
from jitwarm.proof import space as space_module
from jitwarm.proof.envelope import Envelope, Ints, Values
from jitwarm.proof.forms import affine, pointer
from jitwarm.proof.space import Space, _Disagreement, point_text


def space_of(parameters, where=None):
    return Space(Envelope(None, "site", parameters, dict, where=where))


def points(space):
    return [space.point(row) for table in space.tables(space.every()) for row in table]


def test_points_are_in_lexicographic_order():
    space = space_of({"a": Ints(0, 1), "kind": Values("x", None)})
    assert points(space) == [
        {"a": 0, "kind": "x"},
        {"a": 0, "kind": None},
        {"a": 1, "kind": "x"},
        {"a": 1, "kind": None},
    ]
    assert type(points(space)[0]["a"]) is int


@pytest.mark.parametrize(
    "where",
    [
        lambda a, b: (a + b <= 3) & (a > 0),
        lambda a, b: a + b <= 3 and a > 0,
        lambda b, a: 0 < a <= 3 - b,
        lambda **all_of_them: (all_of_them["a"] + all_of_them["b"] <= 3) & (all_of_them["a"] > 0),
    ],
)
def test_where_is_written_for_arrays_or_for_numbers(where):
    space = space_of({"a": Ints(0, 3), "b": Ints(0, 3)}, where)
    wanted = [(a, b) for a in range(1, 4) for b in range(4) if a + b <= 3]
    assert [(p["a"], p["b"]) for p in points(space)] == wanted
    assert space.count() == len(wanted)


def test_where_sees_values_as_they_are():
    parameters = {"dtype": Values("fp8", "bf16"), "flag": Values(True, False), "n": Ints(1, 2)}
    where = lambda dtype, flag: (dtype == "fp8") | ~flag
    assert [(p["dtype"], p["flag"]) for p in points(space_of(parameters, where))][::2] == [
        ("fp8", True),
        ("fp8", False),
        ("bf16", False),
    ]


def test_what_where_does_not_look_at_is_multiplied():
    space = space_of({"a": Ints(1, 10), "huge": Ints(1, 10**9)}, lambda a: a <= 3)
    assert space.count() == 3 * 10**9
    assert space_of({"a": Ints(0, 10**6), "b": Ints(0, 10**6)}).count() == (10**6 + 1) ** 2


def test_what_is_dear_to_count_is_not_counted(monkeypatch):
    monkeypatch.setattr(space_module, "COUNTED", 10)
    assert space_of({"a": Ints(1, 11)}, lambda a: a <= 3).count() is None
    assert space_of({"a": Ints(1, 10)}, lambda a: a <= 3).count() == 3
    monkeypatch.setattr(space_module, "COUNTED", 100)
    monkeypatch.setattr(space_module, "COUNTED_ONE_BY_ONE", 10)
    assert space_of({"a": Ints(1, 11)}, lambda a: bool(a <= 3 or 0)).count() is None


def test_an_error_in_where_names_the_site_and_the_point():
    with pytest.raises(DeclarationError, match="site: `where` fails at a=0: ZeroDivisionError"):
        space_of({"a": Ints(0, 3)}, lambda a: 12 // a > 3).count()


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (None, lambda n, v: (v is None) | (n > 1)),
        ((1, 2), lambda n, v: (v == (1, 2)) | (n > 1)),
        ("a", lambda n, v: (len(v) == 1) | (n > 1)),
        ("a", lambda n, v: isinstance(v, str) | (n > 1)),
        (True, lambda n, v: (v + v == 2) | (n > 1)),
        (2**40, lambda n, v: (v * v > 100) | (n > 1)),
    ],
)
def test_where_gets_each_value_itself(value, where):
    assert space_of({"n": Ints(1, 9), "v": Values(value)}, where).count() == 9


def test_products_of_large_numbers_do_not_leave_64_bits():
    space = space_of({"a": Ints(2**40 - 3, 2**40)}, lambda a: a * a > 100)
    assert space.count() == 4


def test_where_that_says_two_things_is_found_out():
    """`bool` of an array of one is its element, of Python's text of it never empty."""
    space = space_of({"n": Ints(1, 40)}, lambda n: len(str(n)) < 3)
    with pytest.raises(_Disagreement, match="n="):
        space_of({"n": Ints(1, 400)}, lambda n: (n > 500) | (len(str(n)) < 3)).count()
    assert Space(space_envelope(lambda n: len(str(n)) < 2), by_point=True).count() == 9
    with pytest.raises(_Disagreement):
        space.count()


def space_envelope(where):
    return Envelope(None, "site", {"n": Ints(1, 40)}, dict, where=where)


def test_where_gives_truth_values():
    assert space_of({"n": Ints(1, 9)}, lambda n: ~(min(n, 2) == 1)).count() == 8
    with pytest.raises(DeclarationError, match="it gives 7, which is no truth value"):
        space_of({"n": Ints(7, 7)}, lambda n: n).count()


def test_where_takes_parameters_that_there_are():
    with pytest.raises(DeclarationError, match="site: `where` takes 'm', which is no parameter"):
        space_of({"n": Ints(1, 9)}, lambda m: m > 1)


def test_ints_are_whole_numbers_and_may_be_many():
    for wrong in (1.5, True, None):
        with pytest.raises(DeclarationError, match="is no whole number"):
            Ints(wrong, 3)
    huge = space_of({name: Ints(0, 2**63) for name in "abc"}, lambda a, b, c: a * b * c < 100)
    assert huge.product == (2**63 + 1) ** 3
    assert huge.count() is None
    tried = huge.tried(640, np.random.default_rng(7))
    assert set(range(62)) <= {int(row[0]).bit_length() for row in tried}


def test_random_points_are_allowed_and_the_same_each_time():
    space = space_of({"a": Ints(0, 50), "b": Ints(0, 50)}, lambda a, b: a + b <= 5)
    one, two = (space.drawn(40, np.random.default_rng(7)) for _ in range(2))
    assert len(one) == 40
    assert (one.sum(axis=1) <= 5).all()
    assert (one == two).all()


def test_rejection_gives_up():
    space = space_of({"a": Ints(0, 50)}, lambda a: a < 0)
    assert len(space.drawn(5, np.random.default_rng(7), most=1_000)) == 0


def test_corners():
    space = space_of({"a": Ints(1, 9), "flag": Values(0, 1, 2), "one": Ints(4, 4)})
    assert space.corners().tolist() == [[1, 0, 4], [1, 2, 4], [9, 0, 4], [9, 2, 4]]


def test_integers_beyond_64_bits():
    space = space_of({"n": Ints(2**63 - 1, 2**63 + 1)})
    assert [p["n"] for p in points(space)] == [2**63 - 1, 2**63, 2**63 + 1]
    assert all(2**63 - 1 <= row[0] <= 2**63 + 1 for row in space.drawn(9, np.random.default_rng(7)))


def test_an_envelope_without_parameters_has_one_point():
    space = space_of({})
    assert points(space) == [{}]
    assert space.count() == 1


def test_text_of_a_point():
    assert (
        point_text({"n": 1, "kind": "x", "what": object}) == "n=1, kind='x', what=builtins.object"
    )
    assert point_text({"it": object()}) == "it=<builtins.object>"


@pytest.mark.parametrize(
    ("parameters", "forms", "error", "match"),
    [
        ({"n": range(3)}, None, DeclarationError, "parameter 'n' is a range"),
        ({"n": Ints(3, 2)}, None, EmptySpaceError, "parameter 'n' has no values"),
        ({"n": Values()}, None, EmptySpaceError, "parameter 'n' has no values"),
        (["n"], None, DeclarationError, "parameters is a list; give a mapping of names"),
        ({"n": Ints(1, 2)}, ["x"], DeclarationError, "forms is a list; give a mapping of names"),
        ({"n": Ints(1, 2)}, {"x": 3}, DeclarationError, "the form of 'x' is a int; use affine"),
        ({"n": Ints(1, 2)}, {"x": affine(m=1)}, DeclarationError, "uses 'm'"),
        (
            {"n": Values(1, 2)},
            {"x": pointer(offset=affine(n=1), length=affine(1))},
            DeclarationError,
            "no parameter of whole numbers",
        ),
    ],
)
def test_envelopes_that_are_refused(parameters, forms, error, match):
    with pytest.raises(error, match=match):
        Envelope(None, "site", parameters, dict, forms=forms)


def test_forms_take_whole_numbers():
    with pytest.raises(DeclarationError, match="n is 0.5"):
        affine(n=0.5)
    with pytest.raises(DeclarationError, match="base is True"):
        affine(True)
