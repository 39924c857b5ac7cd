"""A7: a warm-up that makes strides up (3 and 16) where real tables have a stride of 1."""

import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, WarmupChoices, launch


@triton.jit
def _sum_column(table, stride_table, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(table + at * stride_table)))


def column(stride):
    spec = TensorSpec("int32")
    return launch(table=spec, stride_table=stride, out=spec, BLOCK=32)


FAULT = Fault(
    "warmed as generic, specialised as 1",
    kernel=_sum_column,
    declared=[column(3), column(16)],
    launches=[column(1)],
    expected=[Expected("MISS", field="stride_table", seen="constexpr=1", count=1)],
)
TWIN = Fault(
    "the stride of a contiguous table is declared",
    kernel=_sum_column,
    declared=[column(WarmupChoices(1, 3, 16))],
    launches=[column(1), column(48), column(5)],
)
