"""A half-open range that doubles leaves out the last block where the limit is a power of 2."""

import triton
import triton.language as tl

from jitwarm.faults import (
    Envelope,
    Expected,
    Fault,
    Ints,
    TensorSpec,
    affine,
    launch,
    next_power_of_two,
)

MOST = 512


@triton.jit(do_not_specialize=["rows"])
def _sort_rows(x, rows, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < rows, other=0)
    tl.store(x + at, tl.sort(value), mask=at < rows)


def sort(rows):
    return {"x": TensorSpec("int32"), "rows": rows, "BLOCK": triton.next_power_of_2(rows)}


def declared(stop):
    size = 1
    while size < stop:
        yield launch(**sort(size))
        size *= 2


TRAFFIC = Envelope(
    _sort_rows,
    "requests of a step",
    {"rows": Ints(1, MOST)},
    sort,
    forms={"BLOCK": next_power_of_two(affine(rows=1))},
)

FAULT = Fault(
    "while size < max",
    kernel=_sort_rows,
    declared=lambda: declared(MOST),
    launches=TRAFFIC,
    expected=[Expected("MISS", field="BLOCK", seen="constexpr=512", smallest="rows=257", count=1)],
)
TWIN = Fault(
    "while size <= max",
    kernel=_sort_rows,
    declared=lambda: declared(MOST + 1),
    launches=TRAFFIC,
)
