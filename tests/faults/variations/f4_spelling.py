"""The default written out: Triton finds the binary on disk and not in memory."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, launch


@triton.jit
def _square(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * tl.load(x + at))


def serve():
    _square[(1,)](torch.zeros(64), BLOCK=64, num_warps=4)


FAULT = Fault(
    "num_warps=4 is the default, and is another spelling",
    kernel=_square,
    declared=[launch(x=TensorSpec("float32"), BLOCK=64)],
    launches=serve,
    expected=[Expected("DISK-HIT", kernel="_square", count=1)],
)
TWIN = Fault(
    "declared as it is launched",
    kernel=_square,
    declared=[launch(x=TensorSpec("float32"), BLOCK=64, num_warps=4)],
    launches=serve,
)
