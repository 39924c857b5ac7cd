"""Two integers and a pointer change class in one launch; the finding names all three."""

import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, WarmupChoices, launch


@triton.jit
def _pad_rows(x, rows, columns, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < rows * columns, other=0.0))


def pad(rows, columns, *, aligned=True):
    x = TensorSpec("float16", aligned=aligned)
    return launch(x=x, rows=rows, columns=columns, out=TensorSpec("float16"), BLOCK=64)


FAULT = Fault(
    "rows, columns and an offset at once",
    kernel=_pad_rows,
    declared=[pad(16, 16)],
    launches=[pad(1, 17, aligned=False)],
    expected=[
        Expected(
            "MISS",
            field="x, rows, columns",
            warmed="*fp16/D, i32/D, i32/D",
            seen="*fp16/, constexpr=1, i32/",
            count=1,
        )
    ],
)
TWIN = Fault(
    "every combination, zero and a negative count among them",
    kernel=_pad_rows,
    declared=[pad(WarmupChoices(1, 16, 17), WarmupChoices(1, 16, 17)),
              pad(WarmupChoices(1, 16, 17), WarmupChoices(1, 16, 17), aligned=False)],
    launches=[pad(1, 17, aligned=False), pad(0, -16), pad(-1, 2)],
)  # fmt: skip
