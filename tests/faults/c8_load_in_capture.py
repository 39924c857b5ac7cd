"""C8: the first launch of a kernel that was only compiled lies in a graph capture."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, launch, phase


@triton.jit
def _advance(positions, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(positions + at, tl.load(positions + at) + 1)


def capture():
    positions = torch.zeros(128, dtype=torch.int64)
    with phase("capture"):  # as an engine says around torch.cuda.graph
        _advance[(1,)](positions, BLOCK=128)


SETTINGS = {
    "kernel": _advance,
    "declared": [launch(positions=TensorSpec("int64"), BLOCK=128)],
    "launches": capture,
}

FAULT = Fault(
    "a module is loaded while a stream is captured",
    depth="compiled",
    expected=[Expected("CAPTURE-UNSAFE", kernel="_advance", message="loaded", count=1)],
    **SETTINGS,
)
TWIN = Fault("it is loaded before", depth="loaded", **SETTINGS)
