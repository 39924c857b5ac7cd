"""The "cases" style against a naive product, and its mistakes."""

from __future__ import annotations

import copy
import functools
import itertools
import time
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitwarm.contract import (
    JitKernel,
    NoKeys,
    TritonWarmupTensor,
    WarmupChoices,
    WarmupIntRange,
    _when,
    counting_points,
    zip_inputs,
)
from jitwarm.contract import cases as cases_module
from jitwarm.contract.cases import expand_cases, given_cases
from jitwarm.declare import launch
from jitwarm.errors import (
    DeclarationError,
    EmptySpaceError,
    OutsideCasesError,
    UsageError,
    WrongKindError,
)

STRIDES = WarmupChoices(1, 2)


class Kernel(JitKernel["Kernel.CompileKey"]):
    """Cases that become keys through dispatch."""

    scale = 2

    @dataclass(frozen=True)
    class CompileKey:
        block: int
        aligned: bool

    def dispatch(self, *, n, aligned):
        return self.CompileKey(1 << (n - 1).bit_length(), aligned)

    def cases(self, config, *, most=8):
        """A docstring is no statement."""
        n = WarmupIntRange(1, most + 1)
        doubled = n * self.scale
        _when(doubled != 6)
        aligned = WarmupChoices(True, False)
        _when(aligned or n >= config)
        return {"n": n, "aligned": aligned}

    def get_warmup_keys(self, config):
        return [self.compile_key(case) for case in self._expand_warmup_cases(self.cases, config)]

    def compile(self, key):
        raise NotImplementedError


def points(function, *args, **kwargs):
    return list(expand_cases("K", function, args, kwargs))


def test_cases_of_a_method_are_mappings_in_order_of_declaration_last_fastest():
    found = Kernel()._expand_warmup_cases(Kernel().cases, 4, most=5)
    assert iter(found) is found
    assert [tuple(case.values()) for case in found] == [
        *((1, True), (2, True), (4, True), (4, False), (5, True), (5, False))
    ]


def test_keys_and_points_of_a_kernel_in_cases_style():
    found = Kernel().enumerate_keys(4, (), {})
    assert found.points == 12
    assert [declared.text for declared in found.declared] == [
        f"Kernel(block={block}, aligned={aligned})"
        for block, aligned in [(1, True), (2, True), (4, True), (4, False), (8, True), (8, False)]
    ]


axis = st.lists(st.integers(-3, 3), min_size=1, max_size=3)


@given(axes=st.lists(axis, min_size=1, max_size=4), drop=st.data())
def test_it_is_the_product_without_what_when_drops(axes, drop):
    every = list(itertools.product(*axes))
    dropped = drop.draw(st.sets(st.sampled_from(every)))
    at = drop.draw(st.integers(0, len(axes)))  # a second condition, on the first `at` domains
    limit = drop.draw(st.integers(-9, 9))

    def cases():
        values = []
        for index, choices in enumerate(axes):
            if index == at:
                _when(sum(values) != limit)
            values.append(WarmupChoices(*choices))
        _when(tuple(values) not in dropped)
        return dict(enumerate(values))

    expected = [
        point
        for point in every
        if point not in dropped and (at == len(axes) or sum(point[:at]) != limit)
    ]
    with counting_points() as count:
        if expected:
            assert [tuple(case.values()) for case in points(cases)] == expected
        else:
            with pytest.raises(EmptySpaceError):
                points(cases)
    assert count.points == len(expected)


@given(st.integers(2, 6), st.integers(1, 3))
def test_domains_may_depend_on_earlier_ones(most, step):
    def cases():
        n = WarmupIntRange(1, most)
        m = WarmupIntRange(n, 2 * n + 1, step)
        if m % 2:
            return {"n": n, "m": m, "odd": WarmupChoices("a", "b")}
        return {"n": n, "m": m}

    expected = []
    for n in range(1, most):
        for m in range(n, 2 * n + 1, step):
            expected += [(n, m, odd) for odd in "ab"] if m % 2 else [(n, m)]
    assert [tuple(case.values()) for case in points(cases)] == expected


def test_domains_anywhere():
    def helper(name):
        return WarmupChoices(f"{name}1", f"{name}2")

    def cases():
        made = [helper(name) for name in ("x", "y")]
        return {
            "made": made,
            "tensor": TritonWarmupTensor("int32", aligned=WarmupChoices(True, False)),
            "call": max([WarmupIntRange(2, 5, advance=lambda v: v * 2)]),
        }

    found = points(cases)
    assert len(found) == 16
    assert found[1] == {"made": ["x1", "y1"], "tensor": TritonWarmupTensor("int32"), "call": 4}
    assert found[2]["tensor"].aligned is False and found[4]["made"] == ["x1", "y2"]


def test_values_are_taken_as_they_are():
    values = ((1, 2), None, [3], True, 1, 1.0)
    assert [case["v"] for case in points(lambda: {"v": WarmupChoices(*values)})] == list(values)
    assert points(lambda: {"v": 3}) == [{"v": 3}]


def test_alternatives_that_are_made_anew_are_new_in_each_point():
    found = points(lambda: {"v": WarmupChoices([1], [2]), "n": WarmupChoices(1, 2)})
    assert [case["v"] for case in found] == [[1], [1], [2], [2]]
    assert found[0]["v"] is not found[1]["v"]


def test_steps_of_advance_are_walked_once():
    walked = []

    def next_value(v):
        walked.append(v)
        return v + 1

    assert len(points(lambda: {"n": WarmupIntRange(0, 50, advance=next_value)})) == 50
    assert walked == list(range(50))


def test_domains_outside_are_unchanged_and_nothing_stays_behind():
    assert points(lambda: {"n": WarmupChoices(1, 2)}) == [{"n": 1}, {"n": 2}]
    made = WarmupIntRange(1, 3)
    assert isinstance(made, WarmupIntRange) and list(made.values()) == [1, 2]
    assert copy.deepcopy(STRIDES) == STRIDES == copy.copy(STRIDES)
    assert len(list(launch(n=WarmupChoices(1, 2)).points("K"))) == 2
    running = expand_cases("K", lambda: {"n": WarmupChoices(1, 2)}, (), {})
    next(running)  # between two points nothing of the first is active
    assert isinstance(WarmupChoices(1), WarmupChoices)
    with pytest.raises(OutsideCasesError):
        _when(True)


def test_cases_within_cases():
    def inner():
        return {"n": WarmupChoices(1, 2)}

    def outer():
        _when(len(points(inner)) == 2)
        return {"inner": [case["n"] for case in points(inner)], "m": WarmupChoices(3, 4)}

    assert points(outer) == [{"inner": [1, 2], "m": 3}, {"inner": [1, 2], "m": 4}]


def test_when_outside():
    with pytest.raises(RuntimeError, match=r"^_when\(\.\.\.\) was called outside") as caught:
        _when(True)
    assert isinstance(caught.value, UsageError)
    for wrong in ((), (True, True)):
        with pytest.raises(TypeError):
            points(lambda wrong=wrong: _when(*wrong))
    with pytest.raises(TypeError):
        _when(condition=True)


def test_a_dropped_point_cannot_be_kept():
    def cases():
        n = WarmupChoices(1, 2, 3)
        try:
            _when(n != 2)
        except Exception as error:  # takes errors, not the signal
            raise AssertionError from error
        except BaseException:
            pass  # the point is dropped all the same
        return {"n": n}

    assert points(cases) == [{"n": 1}, {"n": 3}]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: {"n": WarmupChoices()}, r"WarmupChoices in line \d+' has no values"),
        (lambda: {"n": WarmupIntRange(3, 3)}, r"WarmupIntRange in line \d+' has no values"),
        (lambda: _when(False), r"<lambda>: _when dropped every point \(1 tried\)"),
        (lambda: _when(WarmupIntRange(0, 9) > 9), r"_when dropped every point \(9 tried\)"),
        (
            lambda: {"n": WarmupIntRange(WarmupChoices(1, 2), 2)},
            (
                r"has no values \(WarmupIntRange\(start=2, .* domains before it are 2; put "
                r"a _when"
            ),
        ),
    ],
)
def test_empty_spaces(function, message):
    with pytest.raises(EmptySpaceError, match=f"^K: .*{message}"):
        points(function)


def test_the_line_of_a_domain_is_that_of_the_function():
    def cases():
        return {"n": WarmupChoices()}

    with pytest.raises(EmptySpaceError, match=f"in line {cases.__code__.co_firstlineno + 1}'"):
        points(cases)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: None, "returned a NoneType for a case; return one mapping"),
        (lambda: [WarmupChoices(1, 2)], "returned a list for a case"),
        (lambda: NoKeys("none"), "returned a NoKeys for a case"),
        (lambda: (yield {"n": 1}), "returned a generator for a case"),
        (lambda: {"s": STRIDES}, "holds a WarmupChoices in 's': a domain stands for its values"),
        (lambda: {"s": (1, [STRIDES])}, "holds a WarmupChoices in 's'"),
        (lambda: {"s": zip_inputs({"a": 1})}, "holds a RowGroup in 's'"),
        (lambda: {"x": TritonWarmupTensor("int8", shape=(STRIDES,))}, "a WarmupChoices in 'x'"),
    ],
)
def test_what_a_case_may_not_be(function, message):
    with pytest.raises(WrongKindError, match=f"^K: .*<lambda> .*{message}") as caught:
        points(function)
    assert isinstance(caught.value, TypeError) and isinstance(caught.value, DeclarationError)


def test_domains_do_not_nest():
    with pytest.raises(DeclarationError, match="holds a WarmupChoices among its values"):
        points(lambda: {"n": WarmupChoices(STRIDES, 2)})
    with pytest.raises(DeclarationError, match=r"line \d+.*both step=2 and advance"):
        points(lambda: {"n": WarmupIntRange(1, 9, 2, lambda v: v + 1)})


@functools.cache
def cached():
    return WarmupChoices(1, 2)


def not_repeatable():
    count = itertools.count(2)
    return [
        lambda: {"n": cached()},
        lambda: {"n": WarmupIntRange(0, next(count))},
        lambda: {"n": WarmupChoices(*range(next(count)))},
        lambda: {"n": WarmupChoices(1, 2) if next(count) % 2 else WarmupIntRange(1, 3)},
    ]


@pytest.mark.parametrize("function", not_repeatable())
def test_functions_that_do_something_else_each_time(function):
    cached.cache_clear()
    with pytest.raises(DeclarationError, match=r"^K: .*<lambda> made other domains when it was"):
        points(function)


def test_errors_of_the_function_pass_through_and_leave_nothing_behind():
    def cases():
        return {"n": 6 // WarmupChoices(1, 0)}

    with pytest.raises(ZeroDivisionError):
        points(cases)
    assert isinstance(WarmupChoices(1), WarmupChoices)
    with pytest.raises(TypeError, match="positional argument"):
        points(cases, 1)


def test_a_provider_is_recognised_by_what_it_does():
    cases = given_cases("K", lambda: {"n": WarmupChoices(1, 2)}, (), {})
    assert (cases.cases, cases.failures) == ([{"n": 1}, {"n": 2}], [])
    assert given_cases("K", lambda: _when(True) or {"n": 1}, (), {}).cases == [{"n": 1}]
    assert given_cases("K", lambda: {"n": 1}, (), {}).cases == [{"n": 1}]
    assert given_cases("K", lambda: ({"n": n} for n in (1, 2)), (), {}).cases == [
        {"n": 1},
        {"n": 2},
    ]
    assert given_cases("K", lambda: NoKeys("none"), (), {}).spoken == NoKeys("none")
    [dropped] = given_cases("K", lambda: _when(False), (), {}).failures
    assert isinstance(dropped, EmptySpaceError)


def test_what_came_before_an_error_of_a_provider_stays():
    def provider():
        yield {"n": 1}
        yield 3
        yield {"n": STRIDES}
        yield {"n": 2}
        raise LookupError("no more")

    with counting_points() as count:
        cases = given_cases("K", provider, (), {})
    assert (cases.cases, count.points) == ([{"n": 1}, {"n": 2}], 2)
    assert [type(error) for error in cases.failures] == [
        *(LookupError, WrongKindError, WrongKindError)
    ]


def test_the_budget():
    """8,192 points are 0.06 s on the machine of docs/measurements.md; the limit is far above."""

    def cases():
        n = WarmupIntRange(1, 1025)
        aligned = WarmupChoices(True, False)
        stride = WarmupChoices(1, 2, 3, 16)
        _when(n + stride > 0)
        return {"x": TritonWarmupTensor("float32", aligned=aligned), "n": n, "stride": stride}

    start = time.process_time()
    assert len(points(cases)) == 8192
    assert time.process_time() - start < 0.9


def test_the_module_shows_an_example_that_works():
    source = cases_module.__doc__.partition("def cases")[2].partition("\n\n")[0]
    namespace = dict(globals())
    exec(f"def cases{source}".replace("\n        ", "\n    "), namespace)
    assert len(points(namespace["cases"], None, None)) == 20
