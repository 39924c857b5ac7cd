"""A graph of a batch size whose block was not warmed."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, WarmupChoices, launch, phase


@triton.jit
def _gather(x, ids, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + tl.load(ids + at)))


def capture_sizes():
    x = torch.zeros(64)
    for block in (16, 32):
        with phase("capture"):
            _gather[(1,)](x, torch.zeros(64, dtype=torch.int32), x, BLOCK=block)


def gather(block):
    return launch(x=TensorSpec("float32"), ids=TensorSpec("int32"), out=TensorSpec("float32"),
                  BLOCK=block)  # fmt: skip


FAULT = Fault(
    "the second graph compiles",
    kernel=_gather,
    declared=[gather(16)],
    launches=capture_sizes,
    expected=[Expected("CAPTURE-UNSAFE", field="BLOCK", warmed="constexpr=16", count=1)],
)
TWIN = Fault(
    "a key a graph",
    kernel=_gather,
    declared=[gather(WarmupChoices(16, 32))],
    launches=capture_sizes,
)
