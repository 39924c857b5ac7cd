"""The expander: order, names, pruning, predicates, and the errors instead of a silent zero."""

from __future__ import annotations

import functools
import inspect
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from jitwarm.contract import WarmupChoices, WarmupIntRange, counting_points, zip_inputs
from jitwarm.contract.expander import expand
from jitwarm.errors import (
    DeclarationError,
    EmptySpaceError,
    MissingInputError,
    UnknownInputError,
    WrongKindError,
)


@dataclass(frozen=True)
class Key:
    a: object = None
    b: object = None
    c: object = None


def run(dispatch, *groups, _when=None, **axes):
    return expand("Demo", Key, dispatch, groups=groups, when=_when, axes=axes)


def keys_and_points(dispatch, *groups, _when=None, **axes):
    with counting_points() as count:
        found = run(dispatch, *groups, _when=_when, **axes)
    return found, count.points


def of_n(n):
    return Key(n)


def of_a(a):
    return Key(a)


def of_a_b(a, b):
    return Key(a, b)


def power_of_two(n):
    return 1 << (n - 1).bit_length()


def test_range_gives_each_bucket_once_in_order_and_an_unread_axis_does_not_multiply():
    def dispatch(*, n, unread):
        return Key(power_of_two(n))

    found, points = keys_and_points(dispatch, n=WarmupIntRange(1, 6), unread=WarmupIntRange(0, 100))
    assert found == [Key(1), Key(2), Key(4), Key(8)]
    assert points == 5


def test_advance_hops_over_the_boundaries():
    hop = WarmupIntRange(1, 10, advance=lambda v: power_of_two(v) + 1)
    assert run(lambda n: Key(power_of_two(n)), n=hop) == [Key(1), Key(2), Key(4), Key(8), Key(16)]


def test_dispatch_may_be_any_python():
    table, spec = {"x": 5}, SimpleNamespace(width=12)

    def dispatch(*, n, flag, spec, scale=3):
        if flag:
            half, rest = divmod(n, 2)
            return Key(-half, scale**2 % 4, {"f": f"{rest}"}["f"])
        try:
            return Key(sum([table["x"] for _ in range(n)]), min(n, 2), spec.width / 8)
        finally:
            pass

    found = run(dispatch, n=(4, 7), flag=(True, False), spec=spec)
    assert found == [Key(-2, 1, "0"), Key(20, 2, 1.5), Key(-3, 1, "1"), Key(35, 2, 1.5)]


def test_rows_come_first_and_the_last_axis_is_fastest():
    def dispatch(*, y, x, r, s):
        return Key((r, s), x, y)

    found = run(dispatch, zip_inputs({"r": 1, "s": 2}, {"r": 3, "s": 4}), x=(10, 20), y=("p", "q"))
    assert found == [Key(rs, x, y) for rs in ((1, 2), (3, 4)) for x in (10, 20) for y in ("p", "q")]


def test_groups_multiply_in_the_order_given():
    found = run(of_a_b, zip_inputs({"b": 1}, {"b": 2}), zip_inputs({"a": 3}, {"a": 4}))
    assert found == [Key(3, 1), Key(4, 1), Key(3, 2), Key(4, 2)]


def test_unread_names_leave_a_group_and_an_unread_group_does_not_multiply():
    def dispatch(*, a, b):
        return Key(a)

    both = zip_inputs({"a": 1, "b": 1}, {"a": 2, "b": 2})
    assert keys_and_points(dispatch, both) == ([Key(1), Key(2)], 2)
    assert keys_and_points(dispatch, zip_inputs({"b": 1}, {"b": 2}), a=(5, 6)) == (
        [Key(5), Key(6)],
        2,
    )


def test_predicate_only_inputs_filter_and_do_not_reach_dispatch():
    found, points = keys_and_points(
        of_n, n=WarmupIntRange(1, 5), limit=(2, 3), _when=lambda n, limit: n < limit
    )
    assert (found, points) == ([Key(1), Key(2)], 3)  # n=1 twice, n=2 once


def test_predicate_over_several_lines_beside_another_lambda():
    when, other = (
        (
            lambda n: (
                n
                > sum(
                    (1, 1),
                )
            )
        ),
        lambda n: n,
    )
    assert run(lambda n: Key(other(n)), n=WarmupIntRange(1, 5), _when=when) == [Key(3), Key(4)]


def test_predicate_may_be_a_bound_method_with_defaults():
    class Limits:
        def small(self, n, most=2):
            return n <= most

    assert run(of_n, n=WarmupIntRange(1, 9), _when=Limits().small) == [Key(1), Key(2)]


def test_predicate_that_rejects_everything_says_how_many():
    with pytest.raises(EmptySpaceError, match=r"^Demo: _when rejected all 12 points"):
        run(lambda n, m: Key(n, m), n=WarmupIntRange(0, 4), m=(1, 2, 3), _when=lambda n: n > 9)


def test_empty_axis_is_an_error_even_where_nothing_reads_it():
    def dispatch(*, n, unread):
        return Key(n)

    with pytest.raises(EmptySpaceError, match="Demo: axis 'unread'"):
        run(dispatch, n=1, unread=())


def test_mistyped_axis_is_named_with_the_nearest_input():
    def dispatch(*, block_size, max_tokens=4):
        return Key(block_size, max_tokens)

    with pytest.raises(UnknownInputError, match=r"axis 'max_token' .*did you mean 'max_tokens'"):
        run(dispatch, block_size=1, max_token=(1, 2))
    with pytest.raises(UnknownInputError, match="axis 'zzz'"):
        run(dispatch, zip_inputs({"zzz": 1}), block_size=1)


def test_forgotten_input_is_missing_and_never_a_builtin_or_global():
    def dispatch(*, max, id):  # noqa: A002 - builtins on purpose
        return Key(max, id)

    with pytest.raises(MissingInputError, match="dispatch requires 'id', which no axis supplies"):
        run(dispatch, max=1)
    with pytest.raises(MissingInputError, match="_when requires 'm'"):
        run(of_n, n=1, _when=lambda n, m: True)


def test_a_list_of_tuples_is_alternatives_and_a_literal_tuple_goes_into_choices():
    dispatch = lambda window: Key(window)
    assert run(dispatch, window=(128, 0)) == [Key(128), Key(0)]
    assert run(dispatch, window=WarmupChoices((128, 0))) == [Key((128, 0))]
    assert run(dispatch, zip_inputs({"window": (128, 0)})) == [Key((128, 0))]


def test_same_name_twice():
    with pytest.raises(ValueError, match="'a' is specified more than once"):
        run(of_a_b, zip_inputs({"a": 1, "b": 1}), a=2)
    with pytest.raises(ValueError, match="'b' is specified more than once"):
        run(of_a_b, zip_inputs({"a": 1, "b": 1}), zip_inputs({"b": 2}))


@pytest.mark.parametrize("positional", [{"a": 1}, [{"a": 1}], 3])
def test_positional_that_is_no_row_group(positional):
    with pytest.raises(TypeError, match=r"zip_inputs\(\.\.\.\)") as caught:
        run(of_a, positional)
    assert isinstance(caught.value, WrongKindError)


def test_key_of_another_type():
    with pytest.raises(DeclarationError, match=r"dispatch\(a=1\) returned a tuple, not a Key"):
        run(lambda a: (a,), a=1)


def test_one_true_and_one_point_zero_stay_apart():
    found = run(of_a, a=(1, True, 1.0, 1, 0.0, -0.0))
    assert [repr(key.a) for key in found] == ["1", "True", "1.0", "0.0", "-0.0"]


def test_nan_merges():
    assert len(run(of_a, a=(float("nan"), float("nan")))) == 1


def test_variadic_dispatch_takes_every_extra_axis():
    def dispatch(*, a, **fields):
        return Key(a, **fields)

    found = run(dispatch, a=1, b=(2, 3), c=(4, 5))
    assert found == [Key(1, 2, 4), Key(1, 2, 5), Key(1, 3, 4), Key(1, 3, 5)]
    with_limit = run(dispatch, a=1, b=(2, 3), limit=3, _when=lambda b, limit: b < limit)
    assert with_limit == [Key(1, 2)]  # limit belongs to the predicate alone
    assert run(dispatch, a=1, b=(2, 3), _when=lambda b: b > 2) == [Key(1, 3)]  # b is a key field


def test_variadic_predicate_sees_every_axis():
    found = run(of_n, n=(1, 2), m=(1, 2), _when=lambda **point: point["n"] == point["m"])
    assert found == [Key(1), Key(2)]


def test_positional_only_inputs_are_refused():
    def dispatch(a, /):
        return Key(a)

    with pytest.raises(DeclarationError, match="positional-only parameter 'a'"):
        run(dispatch, a=1)


def through_locals(*, a, b):
    return Key(a, locals()["b"])


def through_frame(*, a, b):
    return Key(a, inspect.currentframe().f_locals["b"])


def through_nested(*, a, b):
    def inner():
        return b

    return Key(a, inner())


def through_default_of_nested(*, a, b):
    def inner(b=b):
        return Key(a, b)

    return inner()


def through_eval(*, a, b):
    return Key(a, eval("b"))


def forwarding(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@forwarding
def through_wrapper(*, a, b):
    return Key(a, b)


class Instance:
    def __call__(self, *, a, b):
        return Key(a, b)


@pytest.mark.parametrize(
    "dispatch",
    [
        through_locals,
        through_frame,
        through_nested,
        through_default_of_nested,
        through_eval,
        through_wrapper,
        Instance(),
        functools.partial(lambda a, b, c: Key(a, b, c), c=0),
    ],
)
def test_an_input_that_is_read_in_a_roundabout_way_is_not_pruned(dispatch):
    found = run(dispatch, a=(1, 2), b=(3, 4))
    assert [(key.a, key.b) for key in found] == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_an_input_that_is_only_overwritten_is_pruned():
    def dispatch(*, a, b):
        del b
        return Key(a)

    assert keys_and_points(dispatch, a=(1, 2), b=WarmupIntRange(0, 50)) == ([Key(1), Key(2)], 2)


def test_full_range_is_dispatched_and_gives_two_keys():
    seen = []

    def dispatch(*, n):
        seen.append(n)
        return Key(n > 4096)

    found, points = keys_and_points(dispatch, n=WarmupIntRange(1, 8193))
    assert found == [Key(False), Key(True)]
    assert (points, seen) == (8192, list(range(1, 8193)))


def test_an_assertion_in_dispatch_propagates():
    def dispatch(*, n):
        assert n < 3, "too many"
        return Key(n)

    with pytest.raises(AssertionError, match="too many"):
        run(dispatch, n=WarmupIntRange(1, 9))


def test_counts_nest_and_do_not_leak_into_other_threads():
    with counting_points() as outer:
        run(of_a, a=(1, 2))
        with counting_points() as inner:
            run(of_a, a=(1, 2, 3))
        thread = threading.Thread(target=run, args=(of_a,), kwargs={"a": (1, 2)})
        thread.start()
        thread.join()
    run(of_a, a=1)
    assert (inner.points, outer.points) == (3, 5)


def test_a_large_space_costs_one_call_per_point():
    calls = 0

    def dispatch(*, reqs, width, flag):
        nonlocal calls
        calls += 1
        return Key(power_of_two(reqs), width, flag)

    found = run(
        dispatch, flag=(False, True), width=WarmupIntRange(0, 14), reqs=WarmupIntRange(1, 1025)
    )
    assert (calls, len(found)) == (28_672, 2 * 14 * 11)
