"""Binding rules: which kernel argument takes which value."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jitwarm.contract.binding import plan_binding
from jitwarm.errors import BindingError


class Strided:
    """A value with strides, which shows where it came from."""

    def __init__(self, name, strides=(7, 3)):
        self.name, self.strides = name, strides

    def stride(self, dim):
        return self.strides[dim]

    def __repr__(self):
        return self.name


def bind(arg_names, inputs, launch=None, **attributes):
    kernel = SimpleNamespace(arg_names=arg_names.split(), **attributes)
    launch = launch or {}
    plan = plan_binding("Demo", kernel, tuple(inputs), tuple(launch))
    return plan.bind(launch, tuple(inputs.values()))


def test_an_input_takes_the_first_name_that_exists():
    x = Strided("x")
    for name in ("x", "x_ptr", "X", "X_PTR"):
        assert bind(name, {"x": x}) == ({name: x}, {})
    with_both = bind("X_PTR X x_ptr", {"x": x}, {"X": 1, "X_PTR": 2})
    assert with_both == ({"X_PTR": 2, "X": 1, "x_ptr": x}, {})


def test_arguments_come_in_kernel_order_and_options_in_launch_order():
    arguments, options = bind("a b C", {"b": 2, "a": 1}, {"num_stages": 3, "C": 4, "num_warps": 8})
    assert list(arguments.items()) == [("a", 1), ("b", 2), ("C", 4)]
    assert list(options.items()) == [("num_stages", 3), ("num_warps", 8)]


def test_the_launch_value_wins_over_an_input():
    assert bind("x_ptr n", {"x": 1, "n": 2}, {"x_ptr": 9}) == ({"x_ptr": 9, "n": 2}, {})


def test_an_input_without_a_kernel_argument_is_legal():
    assert bind("n", {"n": 1, "config": object()})[0] == {"n": 1}


def test_strides_of_what_is_bound():
    x, y, z = Strided("x"), Strided("y", (5, 2, 1)), Strided("z", (11, 1))
    arguments, _ = bind(
        "x_ptr x_stride x_stride1 y y_stride_2 y_stride0 Z_PTR Z_STRIDE Z_STRIDE_1 W W_STRIDE0",
        {"x": x, "y": y, "z": z},
        {"W": Strided("w", (13,))},
    )
    assert list(arguments.values())[1:4] == [7, 3, y]
    assert (arguments["y_stride_2"], arguments["y_stride0"]) == (1, 5)
    assert (arguments["Z_STRIDE"], arguments["Z_STRIDE_1"], arguments["W_STRIDE0"]) == (11, 1, 13)


def test_a_stride_that_is_an_input_is_taken_as_given():
    assert bind("x_ptr x_stride0", {"x": Strided("x"), "x_stride0": 99})[0]["x_stride0"] == 99


def test_the_name_itself_goes_before_its_pointer():
    a, b = Strided("a", (1,)), Strided("b", (2,))
    assert bind("x x_ptr x_stride", {"x": a, "x_ptr": b})[0]["x_stride"] == 1


@pytest.mark.parametrize(
    "argument",
    ["x_stride_B", "stride_x", "x_stride_", "y_stride0", "x_strides", "X_STRIDE", "x_ptr_STRIDE0x"],
)
def test_other_stride_names_are_not_guessed(argument):
    with pytest.raises(BindingError, match=rf"^Demo: nothing binds kernel argument '{argument}'"):
        bind(f"x_ptr {argument}", {"x": Strided("x")})


def test_an_unbound_argument_names_what_was_there():
    with pytest.raises(TypeError, match=r"'BLOCK' .*\(inputs: x, n; launch kwargs: num_warps\)"):
        bind("x n BLOCK", {"x": 1, "n": 2}, {"num_warps": 4})


def test_two_inputs_of_one_argument():
    with pytest.raises(
        BindingError, match="inputs 'x' and 'x_ptr' both bind kernel argument 'x_ptr'"
    ):
        bind("x_ptr", {"x": 1, "x_ptr": 2})
    assert bind("x_ptr", {"x": 1, "x_ptr": 2}, {"x_ptr": 3})[0] == {"x_ptr": 3}


def test_what_a_launch_may_leave_out():
    def source(a, b, TUNED, HEUR, C=5):
        pass

    jit = SimpleNamespace(fn=source)
    tuned = SimpleNamespace(fn=jit, configs=[SimpleNamespace(kwargs={"TUNED": 1})])
    assert bind("a b TUNED HEUR C", {"a": 1, "b": 2}, fn=tuned, values={"HEUR": None})[0] == {
        "a": 1,
        "b": 2,
    }
    with pytest.raises(BindingError, match="'HEUR'"):
        bind("a b TUNED HEUR C", {"a": 1, "b": 2}, fn=tuned)


def test_names_from_a_wrapped_function():
    plan = plan_binding("Demo", SimpleNamespace(func=lambda x, n, k=1: None), ("x", "n"), ())
    assert [name for name, _ in plan.arguments] == ["x", "n"]
    with pytest.raises(TypeError, match="neither arg_names nor a wrapped func"):
        plan_binding("Demo", object(), (), ())


def test_reserved_launch_kwargs_are_neither_arguments_nor_options():
    reserved = {"kernel": 1, "_runtime_launcher": 2, "_runtime_launcher_arg_count": 3}
    assert bind("n", {"n": 1}, reserved) == ({"n": 1}, {})
    with pytest.raises(BindingError, match="'kernel'"):
        bind("kernel", {}, {"kernel": 1})


def test_a_stride_has_no_strides():
    with pytest.raises(BindingError, match="'x_stride0_stride'"):
        bind("x_ptr x_stride0 x_stride0_stride", {"x": Strided("x")})
