"""Only rank 2 launches a view; its launches come from a thread, and so did the warm-up."""

import threading

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault


@triton.jit
def _shift_rows(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) - 1)


def run(offset):
    _shift_rows[(1,)](torch.zeros(80)[offset:], BLOCK=64)


def in_thread(offset):
    thread = threading.Thread(target=run, args=(offset,))
    thread.start()
    thread.join()


def serve(rank):
    in_thread(rank)  # rank 1 starts 4 bytes in, rank 2 8 bytes


def serve_aligned(rank):
    in_thread(4 * rank)


FAULT = Fault(
    "slices that start at the rank",
    warmup=lambda: in_thread(0),
    launches=serve,
    processes=3,
    expected=[Expected("MISS", field="x", warmed="*fp32/D", seen="*fp32/", count=1)],
)
TWIN = Fault(
    "slices that start at 16 bytes times the rank",
    warmup=lambda: in_thread(0),
    launches=serve_aligned,
    processes=3,
)
