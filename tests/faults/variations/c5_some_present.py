"""A marker from an earlier start says that two of three keys need no work."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, WarmupChoices, launch


@triton.jit
def _clip(x, limit: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.minimum(tl.load(x + at), limit))


DECLARED = [launch(x=TensorSpec("float32"), limit=WarmupChoices(1, 2, 3), BLOCK=32)]


def run(*limits):
    for limit in limits:
        _clip[(1,)](torch.zeros(32), limit, BLOCK=32)


FAULT = Fault(
    "limits 1 and 3 are marked as done",
    kernel=_clip,
    declared=DECLARED,
    warmup=lambda: run(2),
    expected=[Expected("MISS", kernel="_clip", warmed="1 of 3 keys", count=1)],
)
TWIN = Fault(
    "nothing is marked",
    kernel=_clip,
    declared=DECLARED,
    warmup=lambda: run(1, 2, 3),
    launches=lambda: run(3),
)
