"""A1: an integer has three classes to Triton (1, a multiple of 16, any other); one was warmed."""

import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, WarmupChoices, launch


@triton.jit
def _clear_blocks(pages, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(pages + at, 0, mask=at < count * BLOCK)


def clear(count):
    return launch(pages=TensorSpec("int32"), count=count, BLOCK=64)


TRAFFIC = [clear(1), clear(32), clear(33)]

FAULT = Fault(
    "a block count of 32 stands for every count",
    kernel=_clear_blocks,
    declared=[clear(32)],
    launches=TRAFFIC,
    expected=[
        Expected("MISS", field="count", warmed="i32/D", seen="constexpr=1", count=1),
        Expected(
            "MISS", field="count", warmed="i32/D", seen="i32/", count=1, advice="do_not_specialize"
        ),
    ],
)
TWIN = Fault(
    "one count of each class",
    kernel=_clear_blocks,
    declared=[clear(WarmupChoices(1, 16, 17))],
    launches=TRAFFIC,
)
