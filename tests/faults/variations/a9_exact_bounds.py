"""32 bits end at 2**31 - 1 above and at -2**31 below, 63 bits at 2**63 - 1."""

import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, launch


@triton.jit(do_not_specialize=["offset"])
def _shift(x, offset, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at + offset))


def shift(offset):
    return launch(x=TensorSpec("int32"), offset=offset, BLOCK=32)


FAULT = Fault(
    "one below the least, and beyond 63 bits",
    kernel=_shift,
    declared=[shift(5)],
    launches=[shift(-(2**31) - 1), shift(2**63)],
    expected=[
        Expected("MISS", field="offset", warmed="i32", seen="i64", count=1),
        Expected("MISS", field="offset", warmed="i32", seen="u64", count=1),
    ],
)
TWIN = Fault(
    "the bounds themselves",
    kernel=_shift,
    declared=[shift(5)],
    launches=[shift(2**31 - 1), shift(-(2**31)), shift(1), shift(0)],
)
