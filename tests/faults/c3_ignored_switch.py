"""C3: warm-up is switched off, and a second entry warms all the same."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, launch


@triton.jit
def _add_one(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + 1)


def second_entry():
    for block in (64, 128, 256):
        _add_one.warmup(torch.float32, BLOCK=block, grid=(1,))


SETTINGS = {
    "kernel": _add_one,
    "declared": [launch(x=TensorSpec("float32"), BLOCK=64)],
    "enabled": False,
}

FAULT = Fault(
    "three compiles while warm-up is off",
    warmup=second_entry,
    expected=[Expected("GATE-IGNORED", message="3", count=1)],
    **SETTINGS,
)
TWIN = Fault("the second entry asks the switch", warmup=lambda: None, **SETTINGS)
