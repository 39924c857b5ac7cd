"""Triton's own warm-up entry compiles and does not load."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault


@triton.jit
def _negate(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, -tl.load(x + at))


def serve():
    _negate[(1,)](torch.zeros(64), BLOCK=64)


def compile_only():
    _negate.warmup(torch.float32, BLOCK=64, grid=(1,))


def compile_and_load():
    _negate.warmup(torch.float32, BLOCK=64, grid=(1,))._init_handles()


FAULT = Fault(
    "kernel.warmup(...) and then traffic",
    warmup=compile_only,
    launches=serve,
    expected=[Expected("NOT-EXECUTED", kernel="_negate", count=1)],
)
TWIN = Fault("loaded as well", warmup=compile_and_load, launches=serve)
