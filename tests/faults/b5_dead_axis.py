"""B5: an axis that the model's configuration fixes doubles the number of compiles."""

import triton
import triton.language as tl

from jitwarm.faults import Envelope, Expected, Fault, Ints, TensorSpec, WarmupChoices, launch


@triton.jit
def _rotate(q, cos_sin, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    tl.store(q + at, tl.load(q + at) * tl.load(cos_sin + at).to(tl.float32))


def rotate(dtype, stride):
    return {"q": TensorSpec("float32"), "cos_sin": TensorSpec(dtype), "stride": stride,
            "BLOCK": 64}  # fmt: skip


# This model keeps its table in float32.
TRAFFIC = Envelope(
    _rotate, "rotary embedding", {"stride": Ints(1, 64)}, lambda stride: rotate("float32", stride)
)


def declared(*dtypes):
    return [launch(**rotate(dtype, WarmupChoices(1, 16, 17))) for dtype in dtypes]


FAULT = Fault(
    "half of the keys are of a dtype that this model does not have",
    kernel=_rotate,
    declared=declared("float32", "bfloat16"),
    launches=TRAFFIC,
    expected=[Expected("UNREACHED", field="cos_sin", message="3 of 6 planned keys", count=1)],
)
TWIN = Fault(
    "the dtype comes from the configuration",
    kernel=_rotate,
    declared=declared("float32"),
    launches=TRAFFIC,
)
