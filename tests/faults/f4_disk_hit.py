"""F4: a second start finds its binary on disk: a stall of milliseconds, and no compile."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault


@triton.jit
def _double(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * 2)


def warm():
    kernel = _double.warmup(torch.float32, BLOCK=64, grid=(1,))
    kernel._init_handles()


def first_start_only(rank):
    if rank == 0:
        warm()


def serve():
    _double[(1,)](torch.zeros(64), BLOCK=64)


FAULT = Fault(
    "the second start is not warmed, its disk is",
    processes=2,
    warmup=first_start_only,
    launches=serve,
    expected=[Expected("DISK-HIT", kernel="_double", count=1)],
)
TWIN = Fault("a second start that warms from disk", processes=2, warmup=warm, launches=serve)
