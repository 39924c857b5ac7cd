"""A3: a number that the client chooses only masks a load, and still makes a second binary."""

import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, launch


@triton.jit
def _gather_logprobs(logprobs, ids, out, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    wanted = tl.load(ids + at, mask=at < count, other=0)
    tl.store(out + at, tl.load(logprobs + wanted), mask=at < count)


# The same source, which asks Triton not to look at the value of `count`.
_gather_any_count = triton.jit(_gather_logprobs.fn, do_not_specialize=["count"])


def gather(count):
    block = triton.next_power_of_2(count)
    return launch(
        logprobs=TensorSpec("float32"),
        ids=TensorSpec("int64"),
        out=TensorSpec("float32"),
        count=count,
        BLOCK=max(block, 64),
    )


FAULT = Fault(
    "31 and 32 logprobs are 32 and 33 rows in one block of 64",
    kernel=_gather_logprobs,
    declared=[gather(32)],
    launches=[gather(32), gather(33)],
    expected=[
        Expected("MISS", field="count", warmed="D", seen="", count=1, advice="do_not_specialize")
    ],
)
TWIN = Fault(
    "the count is not specialised",
    kernel=_gather_any_count,
    declared=[gather(32)],
    launches=[gather(32), gather(33), gather(2)],
)
