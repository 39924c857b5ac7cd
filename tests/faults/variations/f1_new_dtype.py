"""An autotuner's key holds the dtypes, too."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault


@triton.autotune([triton.Config({"BLOCK": block}) for block in (32, 64)], key=["rows", "width"])
@triton.jit(do_not_specialize=["rows", "width"])
def _tuned_sum(x, out, rows, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + at, mask=at < rows * width, other=0.0)))


def total(dtype, rows=16, width=2):
    _tuned_sum[(1,)](torch.zeros(64, dtype=dtype), torch.zeros(1), rows, width)


FAULT = Fault(
    "a second dtype is tuned in the first request",
    warmup=lambda: total(torch.float32),
    launches=lambda: total(torch.bfloat16),
    expected=[Expected("AUTOTUNE", field="x", warmed="float32", seen="bfloat16", count=1)],
)
TWIN = Fault(
    "both dtypes, and a launch that was tuned before",
    warmup=lambda: (total(torch.float32), total(torch.bfloat16)),
    launches=lambda: (total(torch.bfloat16), total(torch.float32)),
)
