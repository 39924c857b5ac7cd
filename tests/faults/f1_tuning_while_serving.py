"""F1: an autotuner's choice is not kept: the first request with a new size times all of them."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 2)], key=["rows"])
@triton.jit(do_not_specialize=["rows"])
def _tuned_copy(x, out, rows, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < rows), mask=at < rows)


def copy(rows):
    x = torch.zeros(rows)
    _tuned_copy[(1,)](x, torch.empty_like(x), rows, BLOCK=64)


FAULT = Fault(
    "tuned for 16 rows at start-up, asked for 32",
    warmup=lambda: copy(16),
    launches=lambda: (copy(16), copy(32)),
    expected=[Expected("AUTOTUNE", field="rows", warmed="16", seen="32", count=1)],
)
TWIN = Fault(
    "tuned for both",
    warmup=lambda: (copy(16), copy(32)),
    launches=lambda: (copy(16), copy(32)),
)
