"""An autotuned kernel under heuristics, its launches written down: what it would choose for, and
what it would compile.
"""

import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, launch


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 2)], key=["width"])
@triton.heuristics({"EVEN": lambda arguments: arguments["width"] % 64 == 0})
@triton.jit(do_not_specialize=["width"])
def _normalise(x, width, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at) if EVEN else tl.load(x + at, mask=at < width, other=0.0)
    tl.store(x + at, value * 2)


def normalise(width):
    return launch(x=TensorSpec("float32"), width=width, BLOCK=128)


FAULT = Fault(
    "a width of 96 is neither tuned nor even",
    kernel=_normalise,
    declared=[normalise(64)],
    launches=[normalise(64), normalise(96)],
    expected=[
        Expected("AUTOTUNE", field="width", warmed="64", seen="96", count=1),
        Expected("MISS", field="EVEN", warmed="constexpr=True", seen="constexpr=False", count=1),
    ],
)
TWIN = Fault(
    "both widths",
    kernel=_normalise,
    declared=[normalise(64), normalise(96)],
    launches=[normalise(96), normalise(64)],
)
