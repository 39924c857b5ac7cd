"""One declared block does not compile; the others are warmed and serve."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, WarmupChoices, launch


@triton.jit
def _chunk_sum(x, out, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= 256, "chunks are at most 256")
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, BLOCK))))


def chunk(block):
    return launch(x=TensorSpec("float32"), out=TensorSpec("float32"), BLOCK=block)


def serve():
    _chunk_sum[(1,)](torch.zeros(256), torch.zeros(1), BLOCK=256)


FAULT = Fault(
    "a block of 512 is declared and cannot be",
    kernel=_chunk_sum,
    declared=[chunk(WarmupChoices(128, 512, 256))],
    launches=serve,
    expected=[Expected("WARM-CRASH", kernel="_chunk_sum", message="BLOCK=512", count=1)],
)
TWIN = Fault(
    "blocks that compile",
    kernel=_chunk_sum,
    declared=[chunk(WarmupChoices(128, 256))],
    launches=serve,
)
