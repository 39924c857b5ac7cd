"""Launches in error messages: cut to a readable length; which arguments a launch must name."""

from __future__ import annotations

import triton

from jitwarm.declare import TensorSpec
from jitwarm.declare.spelling import launch_text, name_problem, nearest, required_arguments


@triton.jit
def norm(x_ptr, eps, debug, BLOCK, FLAG=False):
    pass


def test_the_nearest_name_or_nothing():
    assert nearest("epsilon", ["x_ptr", "eps"]) == "; did you mean 'eps'?"
    assert nearest("tolerance", ["x_ptr", "eps"]) == ""


def test_a_launch_as_text():
    assert launch_text({}) == "launch()"
    assert launch_text({"x": TensorSpec("int8"), "n": 1, "o": object()}) == (
        "launch(x=tensor(int8, aligned), n=1, o=<object>)"
    )
    assert launch_text({"s": "y" * 99}) == f"launch(s='{'y' * 44}...)"
    many = launch_text({f"argument{i}": i for i in range(99)})
    assert many.startswith("launch(argument0=0, argument1=1, ")
    assert many.endswith("...)")
    assert len(many) == len("launch()") + 200


def test_required_are_those_without_a_default_that_triton_does_not_supply():
    assert required_arguments(norm) == ("x_ptr", "eps", "BLOCK")


def test_names_that_fit_are_no_problem():
    assert name_problem(norm, ["x_ptr", "eps", "BLOCK"], frozenset()) == ""
    assert name_problem(norm, ["x_ptr", "eps", "BLOCK", "num_warps"], {"num_warps"}) == ""
    assert name_problem(norm, ["x_ptr", "eps", "BLOCK", "num_warp"], None) == ""


def test_a_name_that_is_already_given_is_not_proposed():
    given = ["x_ptr", "eps", "BLOCK", "BLOCKS", "num_warp", "num_warps", "FLG"]
    unknown = "is neither an argument of norm nor an option of Triton"
    assert name_problem(norm, given, {"num_warps"}) == (
        f"BLOCKS {unknown}; correct it or leave it out; "
        f"num_warp {unknown}; correct it or leave it out; "
        f"FLG {unknown}; did you mean 'FLAG'?"
    )
