"""Axis expansion: what is several values, what is one, and what is refused."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from jitwarm.contract import RowGroup, WarmupChoices, WarmupIntRange, zip_inputs
from jitwarm.declare.domains import axis_values
from jitwarm.errors import DeclarationError, EmptySpaceError


class Window(NamedTuple):
    left: int
    right: int


@dataclass(frozen=True)
class Shape:
    rows: int


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


def values(value):
    return list(axis_values("Demo", "x", value))


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (WarmupIntRange(1, 5), [1, 2, 3, 4]),
        (WarmupIntRange(0, 10, 4), [0, 4, 8]),
        (WarmupIntRange(5, 0, -2), [5, 3, 1]),
        (WarmupIntRange(1, 10, advance=lambda v: 2 * v), [1, 2, 4, 8]),
        (WarmupChoices(1, "a", (2, 3)), [1, "a", (2, 3)]),
        ((False, True), [False, True]),
        ([1, 2], [1, 2]),
        (((1, 2), (3, 4)), [(1, 2), (3, 4)]),
        (7, [7]),
        (None, [None]),
        ("abc", ["abc"]),
        (b"ab", [b"ab"]),
        (Shape(3), [Shape(3)]),
        (Mode.SLOW, [Mode.SLOW]),
        (int, [int]),
    ],
)
def test_axis_values(axis, expected):
    assert values(axis) == expected


@pytest.mark.parametrize(
    "axis",
    [
        {1, 2},
        frozenset({1}),
        {"a": 1},
        range(3),
        iter([1, 2]),
        (v for v in (1, 2)),
        Window(1, 2),
        Mode,
        zip_inputs({"a": 1}),
    ],
)
def test_other_iterables_are_refused_with_kernel_and_axis(axis):
    with pytest.raises(DeclarationError, match=r"^Demo: axis 'x' is a "):
        values(axis)


def test_named_tuple_is_told_where_to_go():
    with pytest.raises(DeclarationError, match=r"put it into WarmupChoices\(\.\.\.\) or a row"):
        values(Window(1, 2))
    assert values(WarmupChoices(Window(1, 2))) == [Window(1, 2)]


@pytest.mark.parametrize(
    "axis", [(), [], WarmupChoices(), WarmupIntRange(4, 4), WarmupIntRange(5, 4)]
)
def test_empty_axis_names_kernel_and_axis(axis):
    with pytest.raises(EmptySpaceError, match=r"^Demo: axis 'x' has no values"):
        values(axis)


@pytest.mark.parametrize("axis", [(1, WarmupIntRange(1, 3)), WarmupChoices(WarmupChoices(1))])
def test_domains_do_not_nest(axis):
    with pytest.raises(DeclarationError, match="domains do not nest"):
        values(axis)


def test_step_beside_advance_is_refused_when_expanded():
    both = WarmupIntRange(1, 9, 2, advance=lambda v: v + 1)  # construction is silent
    with pytest.raises(ValueError, match=r"Demo: axis 'x': both step=2 and advance"):
        values(both)


@pytest.mark.parametrize("advance", [lambda v: v, lambda v: v - 1])
def test_advance_must_increase(advance):
    with pytest.raises(ValueError, match="must return a greater value"):
        values(WarmupIntRange(1, 9, advance=advance))


def test_step_zero_is_refused():
    with pytest.raises(DeclarationError, match="Demo: axis 'x'"):
        values(WarmupIntRange(1, 9, 0))


def test_rows_keep_names_and_values_as_they_are():
    group = zip_inputs({"w": (1, 2), "b": True}, {"b": False, "w": (3, 4)})
    assert group == RowGroup(("w", "b"), (((1, 2), True), ((3, 4), False)))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "no rows"),
        (({"a": 1}, [("a", 1)]), "row 1 is a list"),
        (({}, {"a": 1}), "first row is empty"),
        (({1: 2},), "names are strings"),
        (({"a": 1}, {"b": 1}), "row 1 names"),
        (({"a": WarmupIntRange(1, 2)},), "do not expand"),
        (({"a": WarmupChoices(1)},), "do not expand"),
        (({"a": range(3)},), "do not expand"),
        (({"a": {1, 2}},), "do not expand"),
        (({"a": iter([1])},), "do not expand"),
    ],
)
def test_zip_inputs_refuses(rows, message):
    with pytest.raises(ValueError, match=rf"^zip_inputs: .*{message}"):
        zip_inputs(*rows)
