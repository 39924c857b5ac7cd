"""One Triton kernel, left as it is, and beside it the launches that must be ready at start-up."""

import triton
import triton.language as tl

from jitwarm.declare import TensorSpec, WarmupChoices, declare, launch


@triton.jit
def scale_rows(x_ptr, out_ptr, n_columns, factor, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n_columns
    x = tl.load(x_ptr + row * n_columns + columns, mask=inside)
    tl.store(out_ptr + row * n_columns + columns, x * factor, mask=inside)


@declare(scale_rows)
def ScaleRows(config):
    """x is a slice at any row, maybe unaligned; widths 1 and 16*n have their own binaries."""
    for aligned in (True, False):
        yield launch(
            x_ptr=TensorSpec("float32", aligned=aligned),
            out_ptr=TensorSpec("float32"),
            n_columns=WarmupChoices(1, 2, 16),
            factor=0.5,
            BLOCK=256,
            num_warps=4,
        )
