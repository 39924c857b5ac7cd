"""`triton_warmup_inputs`: native order, pointer groups, and their errors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jitwarm.contract import triton_warmup_inputs
from jitwarm.declare.tensor import TensorSpec

tl = SimpleNamespace(load=None, store=None)


def _copy(x_ptr, out, table, n, BLOCK=16):
    value = tl.load(x_ptr + n, mask=n)
    tl.store(out + 2 * n + BLOCK, value)
    return table


KERNEL = SimpleNamespace(arg_names=["x_ptr", "out", "table", "n", "BLOCK"], fn=_copy)
F32, I32 = TensorSpec("float32"), TensorSpec("int32")


def test_native_order_then_options():
    inputs = triton_warmup_inputs(
        KERNEL, F32, num_warps=8, BLOCK=32, n=3, table=0, out=I32, grid=(2,)
    )
    assert list(inputs.items()) == [
        ("grid", (2,)),
        ("x_ptr", F32),
        ("out", I32),
        ("table", 0),
        ("n", 3),
        ("BLOCK", 32),
        ("num_warps", 8),
    ]


@pytest.mark.parametrize(
    "groups",
    [
        {"float32": "x_ptr", "int32": ["out"]},
        [("int32", ("out",)), ("float32", ("x_ptr",))],
        (pair for pair in [("int32", "out"), ("float32", "x_ptr")]),
    ],
)
def test_pointers_by_dtype(groups):
    inputs = triton_warmup_inputs(KERNEL, pointer_dtypes=groups, table=0, n=3)
    assert inputs == {"grid": (1,), "x_ptr": F32, "out": I32, "table": 0, "n": 3}


def test_a_pointer_may_also_be_an_argument():
    inputs = triton_warmup_inputs(KERNEL, I32, pointer_dtypes={"float32": ["out"]})
    assert inputs == {"grid": (1,), "x_ptr": I32, "out": F32}


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1,) * 6, {}, "6 positional values for 5 arguments"),
        ((1,), {"x_ptr": 2}, "'x_ptr' is given more than once"),
        ((1,), {"pointer_dtypes": {"int8": "x_ptr"}}, "'x_ptr' is given more than once"),
        ((), {"pointer_dtypes": {"int8": ["out", "out"]}}, "'out' is given more than once"),
        ((), {"pointer_dtypes": {"int8": "y_ptr"}}, "'y_ptr', which is no argument"),
        ((), {"pointer_dtypes": {"int8": "table"}}, "'table', which is not a pointer"),
        ((), {"pointer_dtypes": {"int8": "x_ptr"}}, "does not cover 'out'"),
        ((), {"pointer_dtypes": {}}, "does not cover 'x_ptr', 'out'"),
    ],
)
def test_errors(args, kwargs, message):
    with pytest.raises(ValueError, match=rf"^SimpleNamespace: .*{message}"):
        triton_warmup_inputs(KERNEL, *args, **kwargs)


def test_without_source_only_names_tell():
    namespace = {}
    exec("def made(x_ptr, out): pass", namespace)
    kernel = SimpleNamespace(arg_names=["x_ptr", "out"], fn=namespace["made"])
    assert triton_warmup_inputs(kernel, pointer_dtypes={"int32": "x_ptr"})["x_ptr"] == I32
    with pytest.raises(ValueError, match="'out', which is not a pointer"):
        triton_warmup_inputs(kernel, pointer_dtypes={"int32": ["x_ptr", "out"]})
