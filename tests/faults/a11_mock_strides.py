"""A11: Triton's stand-in for a tensor multiplies its strides wrongly from three dimensions on."""

import torch
import triton
import triton.language as tl
from triton.runtime.jit import MockTensor

from jitwarm.faults import Expected, Fault

SHAPE = (2, 8, 16)


@triton.jit
def _copy_heads(source, out, stride_0, stride_1, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride_0 + tl.program_id(1) * stride_1
    at = tl.arange(0, BLOCK)
    tl.store(out + row + at, tl.load(source + row + at))


def mock_warmup():
    tensor = MockTensor(torch.float32, SHAPE)
    strides = tensor.stride()
    _copy_heads.run(tensor, tensor, strides[0], strides[1], grid=(1,), warmup=True, BLOCK=16)


def serve():
    x = torch.zeros(SHAPE)
    _copy_heads[(2, 8)](x, x, x.stride(0), x.stride(1), BLOCK=16)


FAULT = Fault(
    "warmed through the strides of a mock",
    warmup=mock_warmup,
    launches=serve,
    expected=[
        Expected(
            "MISS",
            field="stride_1",
            warmed="i32/",
            seen="i32/D",
            count=1,
            advice="(128, 8, 1), a contiguous tensor's are (128, 16, 1)",
        )
    ],
)
TWIN = Fault("warmed with a tensor", warmup=serve, launches=serve)
