"""An option of the launch is part of its key, too."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, launch


@triton.jit
def _copy(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


SPEC = TensorSpec("float32")


def serve():
    x = torch.zeros(1024)
    warps = 8 if x.numel() >= 1024 else 4
    _copy[(1,)](x, torch.empty_like(x), BLOCK=1024, num_warps=warps)


FAULT = Fault(
    "eight warps for large blocks",
    kernel=_copy,
    declared=[launch(x=SPEC, out=SPEC, BLOCK=1024)],
    launches=serve,
    expected=[Expected("MISS", field="num_warps", warmed="absent", seen="8", count=1)],
)
TWIN = Fault(
    "declared as it is launched",
    kernel=_copy,
    declared=[launch(x=SPEC, out=SPEC, BLOCK=1024, num_warps=8)],
    launches=serve,
)
