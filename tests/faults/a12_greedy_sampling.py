"""A12: the warm-up samples at temperature 0.9; greedy requests skip the cast to float32."""

import triton
import triton.language as tl

from jitwarm.faults import Envelope, Expected, Fault, TensorSpec, Values, launch


@triton.jit
def _row_maximum(logits, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.max(tl.load(logits + at).to(tl.float32)))


def sample(temperature):
    needs_processing = temperature > 0
    dtype = "float32" if needs_processing else "bfloat16"
    return {"logits": TensorSpec(dtype), "out": TensorSpec("float32"), "BLOCK": 1024}


SAMPLER = Envelope(_row_maximum, "sampler", {"temperature": Values(0.9, 0.0)}, sample)

FAULT = Fault(
    "the greedy path is never driven",
    kernel=_row_maximum,
    declared=[launch(**sample(0.9))],
    launches=SAMPLER,
    expected=[
        Expected(
            "MISS",
            field="logits",
            warmed="*fp32/D",
            seen="*bf16/D",
            smallest="temperature=0.0",
            site="sampler",
            count=1,
        )
    ],
)
TWIN = Fault(
    "both paths are driven",
    kernel=_row_maximum,
    declared=[launch(**sample(0.9)), launch(**sample(0.0))],
    launches=SAMPLER,
)
