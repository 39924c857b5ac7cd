"""A4: warmed with a fresh buffer, launched with a view that starts inside one."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, launch


@triton.jit
def _scale_rows(rows, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(rows + at) * 2)


def decode_then_prefill():
    buffer = torch.zeros(512)
    out = torch.zeros(256)
    _scale_rows[(1,)](buffer[2:258], out, BLOCK=256)


FRESH = launch(rows=TensorSpec("float32"), out=TensorSpec("float32"), BLOCK=256)
VIEW = launch(rows=TensorSpec("float32", aligned=False), out=TensorSpec("float32"), BLOCK=256)

FAULT = Fault(
    "a view 8 bytes into its buffer is no fresh allocation",
    kernel=_scale_rows,
    declared=[FRESH],
    launches=decode_then_prefill,
    expected=[Expected("MISS", field="rows", warmed="*fp32/D", seen="*fp32/", count=1)],
)
TWIN = Fault(
    "both alignments are declared",
    kernel=_scale_rows,
    declared=[FRESH, VIEW],
    launches=decode_then_prefill,
)
