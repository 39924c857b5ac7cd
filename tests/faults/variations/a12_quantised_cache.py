"""A flag changes the dtypes of two pointers at once, and only on one path."""

import triton
import triton.language as tl

from jitwarm.faults import Envelope, Expected, Fault, TensorSpec, Values, launch


@triton.jit
def _append(cache, new, scale, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(new + at).to(tl.float32) / tl.load(scale).to(tl.float32)
    tl.store(cache + at, value.to(cache.dtype.element_ty))


def append(quantised):
    cache = "float8_e4m3fn" if quantised else "bfloat16"
    scale = "float32" if quantised else "bfloat16"
    return {"cache": TensorSpec(cache), "new": TensorSpec("bfloat16"), "scale": TensorSpec(scale),
            "BLOCK": 64}  # fmt: skip


WRITER = Envelope(_append, "cache writer", {"quantised": Values(False, True)}, append)

FAULT = Fault(
    "the quantised cache was never driven",
    kernel=_append,
    declared=[launch(**append(False))],
    launches=WRITER,
    expected=[
        Expected(
            "MISS",
            field="cache, scale",
            warmed="*bf16/D, *bf16/D",
            seen="*fp8e4nv/D, *fp32/D",
            smallest="quantised=True",
            count=1,
        )
    ],
)
TWIN = Fault(
    "both",
    kernel=_append,
    declared=[launch(**append(False)), launch(**append(True))],
    launches=WRITER,
)
