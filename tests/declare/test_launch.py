"""Launch cases: what expands, in which order, and what does not."""

from __future__ import annotations

import pytest

from jitwarm.declare import NoKeys, TensorSpec, WarmupChoices, WarmupIntRange, launch
from jitwarm.errors import BindingError, DeclarationError, EmptySpaceError


def test_a_case_without_domains_is_one_point():
    assert list(launch(x=1, BLOCK=2).points("K")) == [{"x": 1, "BLOCK": 2}]
    assert list(launch().points("K")) == [{}]


def test_domains_expand_the_last_one_fastest():
    case = launch(a=WarmupChoices(1, 2), b="x", c=WarmupIntRange(0, 4, 2))
    assert [tuple(point.items()) for point in case.points("K")] == [
        (("a", a), ("b", "x"), ("c", c)) for a in (1, 2) for c in (0, 2)
    ]


def test_a_tuple_or_list_is_an_argument_not_alternatives():
    assert list(launch(a=(1, 2), b=[3]).points("K")) == [{"a": (1, 2), "b": [3]}]


def test_specs_may_be_alternatives():
    one, other = TensorSpec("int32"), TensorSpec("int32", aligned=False)
    assert [p["x"] for p in launch(x=WarmupChoices(one, other)).points("K")] == [one, other]


@pytest.mark.parametrize("empty", [WarmupChoices(), WarmupIntRange(3, 3)])
def test_an_empty_domain_is_an_error_that_names_kernel_and_argument(empty):
    with pytest.raises(EmptySpaceError, match="^K: .*n"):
        list(launch(n=empty).points("K"))


def test_a_case_is_a_value():
    assert launch(a=1) == launch(a=1)
    assert launch(a=1, b=2) != launch(b=2, a=1)


def test_a_value_without_a_name_is_an_error():
    with pytest.raises(BindingError) as error:
        launch(TensorSpec("int32"), 3, BLOCK=16)
    assert str(error.value) == (
        "launch(...) got values without a name (TensorSpec, int): name every argument as the "
        'kernel does, as in launch(x_ptr=TensorSpec("float32"), n=17)'
    )


@pytest.mark.parametrize("silence", ["", "  "])
def test_no_keys_needs_a_reason(silence):
    with pytest.raises(DeclarationError, match="NoKeys needs a reason"):
        NoKeys(silence)
    assert NoKeys("not here").reason == "not here"
