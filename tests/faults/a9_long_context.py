"""A9: a count outgrows 32 bits, `do_not_specialize` or not."""

import triton
import triton.language as tl

from jitwarm.faults import Envelope, Expected, Fault, Ints, TensorSpec, launch


@triton.jit(do_not_specialize=["numel"])
def _fill(out, numel, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 0.0, mask=at < numel)


@triton.jit(do_not_specialize=["numel"])
def _fill_wide(out, numel: tl.int64, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 0.0, mask=at < numel)


def fill(tokens):
    return {"out": TensorSpec("bfloat16"), "numel": tokens * 16_384, "BLOCK": 1024}


def traffic(kernel):
    # Around the bound, so that each point can be walked.
    return Envelope(kernel, "scratch of a step", {"tokens": Ints(131_000, 131_100)}, fill)


FAULT = Fault(
    "131072 tokens of 16384 elements are 2**31",
    kernel=_fill,
    declared=[launch(**fill(17))],
    launches=traffic(_fill),
    expected=[
        Expected(
            "MISS",
            field="numel",
            warmed="i32",
            seen="i64",
            smallest="131072",
            advice="tl.int64",
            count=1,
        )
    ],
)
TWIN = Fault(
    "the argument says how wide it is",
    kernel=_fill_wide,
    declared=[launch(**fill(17))],
    launches=traffic(_fill_wide),
)
