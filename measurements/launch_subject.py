"""One small kernel with 11 run-time and 4 constexpr arguments, launched in each style.

    out = clamp(alpha * x + beta * y)   float32 [rows, cols]; y may be None

All styles compute the same grid and arguments from the same call
`launch(x, y, out, alpha, beta, limit, clamp, negate)`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (Triton reads the annotations of a kernel's arguments: only constexprs may have one.)

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.contract import TritonJitKernel, TritonWarmupTensor, kernel_launcher
from jitwarm.declare import TensorSpec, declare, launch

Launch = Callable[..., torch.Tensor]
ROWS, COLS = 8, 1000
SMALL, LARGE = 512, 1024  # elements a program


@triton.jit
def native_kernel(  # noqa: ANN201
    x_ptr,  # noqa: ANN001
    y_ptr,  # noqa: ANN001
    out_ptr,  # noqa: ANN001
    rows,  # noqa: ANN001, ARG001 - real kernels take sizes that they do not need
    cols,  # noqa: ANN001
    x_stride,  # noqa: ANN001
    y_stride,  # noqa: ANN001
    out_stride,  # noqa: ANN001
    alpha,  # noqa: ANN001
    beta,  # noqa: ANN001
    limit,  # noqa: ANN001
    BLOCK: tl.constexpr,  # noqa: N803
    HAS_Y: tl.constexpr,  # noqa: N803
    CLAMP: tl.constexpr,  # noqa: N803
    NEGATE: tl.constexpr,  # noqa: N803
):
    """The kernel as nobody declared it: its launches are the reference."""
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    value = alpha * tl.load(x_ptr + row * x_stride + columns, mask=inside)
    if HAS_Y:
        value += beta * tl.load(y_ptr + row * y_stride + columns, mask=inside)
    if NEGATE:
        value = -value
    if CLAMP:
        value = tl.minimum(tl.maximum(value, -limit), limit)
    tl.store(out_ptr + row * out_stride + columns, value, mask=inside)


# The same source as two more kernels, each with caches of its own.
declared_kernel = triton.jit(native_kernel.fn)
class_kernel = triton.jit(native_kernel.fn)


@declare(declared_kernel)
def Declared() -> Iterator[Any]:  # noqa: N802
    """The one key that is launched."""
    matrix = TensorSpec("float32", shape=(ROWS, COLS))
    yield launch(
        x_ptr=matrix,
        y_ptr=matrix,
        out_ptr=matrix,
        rows=ROWS,
        cols=COLS,
        x_stride=COLS,
        y_stride=COLS,
        out_stride=COLS,
        alpha=0.5,
        beta=0.25,
        limit=1.0,
        BLOCK=LARGE,
        HAS_Y=True,
        CLAMP=True,
        NEGATE=False,
        num_warps=8,
    )


@dataclass(frozen=True, slots=True)
class Key:
    """Everything that the launch chooses or is told."""

    block: int
    has_y: bool
    clamp: bool
    negate: bool
    num_warps: int


def dispatch(*, cols: int, has_y: bool, clamp: bool, negate: bool) -> Key:
    """The key of one call, for the hand-written launch that makes one."""
    large = cols > SMALL
    return Key(LARGE if large else SMALL, has_y, clamp, negate, 8 if large else 4)


class ScaleKernel(TritonJitKernel[Key]):
    """The contract class over the kernel."""

    kernel = class_kernel
    CompileKey = Key

    def dispatch(self, *, cols: int, has_y: bool, clamp: bool, negate: bool) -> Key:
        """The key of one call; the body of the function `dispatch`, so that both cost the same."""
        large = cols > SMALL
        return Key(LARGE if large else SMALL, has_y, clamp, negate, 8 if large else 4)

    def get_warmup_keys(self) -> list[Key]:
        """The one key that is launched."""
        return self._trace_dispatch(self.dispatch)(cols=COLS, has_y=True, clamp=True, negate=False)

    def warmup_inputs(self, key: Key) -> dict[str, Any]:
        """Arguments of a call that has this key."""
        matrix = TritonWarmupTensor("float32", shape=(ROWS, COLS))
        return {
            "x": matrix,
            "y": matrix if key.has_y else None,
            "out": matrix,
            "alpha": 0.5,
            "beta": 0.25,
            "limit": 1.0,
            "clamp": key.clamp,
            "negate": key.negate,
        }

    @kernel_launcher
    def __call__(
        self,
        x: torch.Tensor,
        y: torch.Tensor | None,
        out: torch.Tensor,
        alpha: float,
        beta: float,
        limit: float,
        clamp: bool,
        negate: bool,
    ) -> Any:
        """Compute `out` and return it."""
        rows, cols = x.shape
        key = self.dispatch(cols=cols, has_y=y is not None, clamp=clamp, negate=negate)
        kwargs = {
            "y_ptr": out if y is None else y,
            "rows": rows,
            "cols": cols,
            "BLOCK": key.block,
            "HAS_Y": key.has_y,
            "CLAMP": key.clamp,
            "NEGATE": key.negate,
            "num_warps": key.num_warps,
        }
        return (rows, -(-cols // key.block)), kwargs, out


Scale = ScaleKernel()


def hand_written(kernel: Any) -> Launch:
    """The launch as an engine writes it, without a key."""

    def call(
        x: torch.Tensor,
        y: torch.Tensor | None,
        out: torch.Tensor,
        alpha: float,
        beta: float,
        limit: float,
        clamp: bool,
        negate: bool,
    ) -> torch.Tensor:
        rows, cols = x.shape
        large = cols > SMALL
        block = LARGE if large else SMALL
        has_y = y is not None
        other = out if y is None else y
        kernel[(rows, -(-cols // block))](
            x,
            other,
            out,
            rows,
            cols,
            x.stride(0),
            other.stride(0),
            out.stride(0),
            alpha,
            beta,
            limit,
            BLOCK=block,
            HAS_Y=has_y,
            CLAMP=clamp,
            NEGATE=negate,
            num_warps=8 if large else 4,
        )
        return out

    return call


def hand_written_with_key(kernel: Any) -> Launch:
    """The same launch through a key, as the class makes one on each call."""

    def call(
        x: torch.Tensor,
        y: torch.Tensor | None,
        out: torch.Tensor,
        alpha: float,
        beta: float,
        limit: float,
        clamp: bool,
        negate: bool,
    ) -> torch.Tensor:
        rows, cols = x.shape
        key = dispatch(cols=cols, has_y=y is not None, clamp=clamp, negate=negate)
        other = out if y is None else y
        kernel[(rows, -(-cols // key.block))](
            x,
            other,
            out,
            rows,
            cols,
            x.stride(0),
            other.stride(0),
            out.stride(0),
            alpha,
            beta,
            limit,
            BLOCK=key.block,
            HAS_Y=key.has_y,
            CLAMP=key.clamp,
            NEGATE=key.negate,
            num_warps=key.num_warps,
        )
        return out

    return call
