"""Three ranks really warm up, each with cache folders of its own."""

import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, WarmupChoices, launch


@triton.jit
def _accumulate(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(x + at, 1.0)


DECLARED = [launch(x=TensorSpec("float32"), BLOCK=WarmupChoices(32, 64))]

FAULT = Fault(
    "no common folder",
    kernel=_accumulate,
    declared=DECLARED,
    processes=3,
    shares_caches=False,
    expected=[Expected("DUP", kernel="_accumulate", message="ranks 0-2")],
)
TWIN = Fault("a common folder", kernel=_accumulate, declared=DECLARED, processes=3)
