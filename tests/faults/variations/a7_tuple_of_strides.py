"""Strides in a tuple argument are specialised one by one."""

import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, launch


@triton.jit
def _transpose(x, strides, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at * strides[0] + strides[1]))


def transpose(*strides):
    spec = TensorSpec("float32")
    return launch(x=spec, strides=strides, out=spec, BLOCK=32)


FAULT = Fault(
    "the second stride of a transposed view is 1",
    kernel=_transpose,
    declared=[transpose(3, 16)],
    launches=[transpose(16, 1)],
    expected=[Expected("MISS", field="strides", count=1)],
)
TWIN = Fault(
    "both orders are declared",
    kernel=_transpose,
    declared=[transpose(3, 16), transpose(16, 1)],
    launches=[transpose(48, 1), transpose(7, 32)],
)
