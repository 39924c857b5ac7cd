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


def written(**options):
    return launch(x=TensorSpec("float32"), BLOCK=64, **options)


FAULT = Fault(
    "num_warps=4 is the default, and is another spelling",
    kernel=_square,
    declared=[written()],
    launches=serve,
    expected=[Expected("DISK-HIT", kernel="_square", count=1)],
)
TWIN = Fault(
    "declared as it is launched",
    kernel=_square,
    declared=[written(num_warps=4)],
    launches=serve,
)

WRITTEN = Fault(
    "the same, written down",
    kernel=_square,
    declared=[written()],
    launches=[written(num_warps=4)],
    expected=[Expected("DISK-HIT", field="num_warps", warmed="absent", seen="4", count=1)],
)
ORDER = Fault(
    "the same options in another order",
    kernel=_square,
    declared=[written(num_warps=8, num_stages=2)],
    launches=[written(num_stages=2, num_warps=8)],
    expected=[Expected("DISK-HIT", field="num_warps, num_stages", count=1)],
)
BOTH = Fault(
    "both spellings are declared",
    kernel=_square,
    declared=[written(), written(num_warps=4)],
    launches=[written(num_warps=4), written()],
)
BY_HAND = Fault(
    "warmed by hand as it is launched",
    kernel=_square,
    declared=[written()],
    warmup=lambda: _square.warmup(torch.float32, BLOCK=64, num_warps=4, grid=(1,)),
    launches=[written(num_warps=4)],
)
