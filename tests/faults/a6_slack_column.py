"""A6: the real block table is one column wider than the one of the warm-up."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, WarmupChoices, launch


@triton.jit
def _first_pages(table, out, stride_table, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(out + row * BLOCK + at, tl.load(table + row * stride_table + at))


def step_with_slack_column():
    table = torch.zeros((4, 1921), dtype=torch.int32)
    out = torch.zeros((4, 64), dtype=torch.int32)
    _first_pages[(4,)](table, out, table.stride(0), BLOCK=64)


def pages(width):
    spec = TensorSpec("int32")
    return launch(table=spec, out=spec, stride_table=width, BLOCK=64)


FAULT = Fault(
    "1920 columns warmed, 1921 launched",
    kernel=_first_pages,
    declared=[pages(1920)],
    launches=step_with_slack_column,
    expected=[
        Expected(
            "MISS",
            field="stride_table",
            warmed="i32/D",
            seen="i32/",
            count=1,
            site="a6_slack_column.py",
        )
    ],
)
TWIN = Fault(
    "both widths are declared",
    kernel=_first_pages,
    declared=[pages(WarmupChoices(1920, 1921))],
    launches=step_with_slack_column,
)
