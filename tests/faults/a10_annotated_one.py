"""A10: an annotated integer has a class of its own for the value 1, and stays an argument."""

import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, WarmupChoices, launch


@triton.jit
def _repeat(source, out, m: tl.int64, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at * m, tl.load(source + at))


def repeat(m):
    spec = TensorSpec("float32")
    return launch(source=spec, out=spec, m=m, BLOCK=128)


FAULT = Fault(
    "16 and 17 warmed, 1 launched",
    kernel=_repeat,
    declared=[repeat(16), repeat(17)],
    launches=[repeat(16), repeat(17), repeat(1)],
    expected=[Expected("MISS", field="m", seen="i64/1", count=1)],
)


@triton.jit
def _narrow_repeat(source, out, m: tl.int32, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at * m, tl.load(source + at))


OVERFLOW = Fault(
    "an int32 annotation does not widen: 2**31 has the key of other multiples of 16",
    kernel=_narrow_repeat,
    declared=[repeat(16)],
    launches=[repeat(32), repeat(2**31)],
    expected=[
        Expected("KEY-INCOMPLETE", field="m", warmed="i32", seen="2147483648", count=1,
                 advice="tl.int64"),
    ],
)  # fmt: skip
NARROW_TWIN = Fault(
    "up to 2**31 - 1 nothing is cut off",
    kernel=_narrow_repeat,
    declared=[repeat(16), repeat(17)],
    launches=[repeat(32), repeat(2**31 - 1), repeat(-(2**31))],
)
TWIN = Fault(
    "1 is warmed too; beyond 32 bits there is nothing new",
    kernel=_repeat,
    declared=[repeat(WarmupChoices(1, 16, 17))],
    launches=[repeat(1), repeat(2**31), repeat(2**31 + 1)],
)
