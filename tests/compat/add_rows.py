"""out = x + bias by rows: strides bound from tensors, a dispatch that forwards its keywords."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from jitwarm.contract import TritonJitKernel as VllmTritonJitKernel
from jitwarm.contract import (
    TritonWarmupTensor,
    WarmupIntRange,
    kernel_launcher,
    triton_scalar_specialization_rep,
)


@triton.jit(do_not_specialize=["width"])
def _add_rows_kernel(
    x_ptr,
    x_stride0,
    bias,
    bias_stride,
    out_ptr,
    out_stride_0,
    out_stride_1,
    width,
    BLOCK: tl.constexpr,
    NEGATE: tl.constexpr,
):
    row = tl.program_id(0)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < width
        value = tl.load(x_ptr + row * x_stride0 + column, mask=mask)
        value += tl.load(bias + column * bias_stride, mask=mask)
        if NEGATE:
            value = -value
        tl.store(out_ptr + row * out_stride_0 + column * out_stride_1, value, mask=mask)


class AddRowsKernel(VllmTritonJitKernel["AddRowsKernel.CompileKey"]):
    kernel = _add_rows_kernel

    @dataclass(frozen=True)
    class CompileKey:
        block: int
        dtype: torch.dtype
        negate: bool
        x_row_stride: int
        out_row_stride: int

    def dispatch(self, *, width: int, **specialization) -> CompileKey:
        block = min(triton.next_power_of_2(width), 64)
        return self.CompileKey(block=block, **specialization)

    def get_warmup_keys(self, vllm_config) -> list[CompileKey]:
        max_width = vllm_config.model_config.hf_config.head_dim
        return self._trace_dispatch(self.dispatch)(
            width=WarmupIntRange(1, max_width + 1, advance=lambda width: 2 * width),
            dtype=torch.float32,
            negate=[False, True],
            x_row_stride=(16, 2),
            out_row_stride=triton_scalar_specialization_rep(max_width),
        )

    def warmup_inputs(self, key: CompileKey) -> dict:
        def rows(row_stride: int) -> TritonWarmupTensor:
            return TritonWarmupTensor(key.dtype, shape=(2, key.block), strides=(row_stride, 1))

        return {
            "x": rows(key.x_row_stride),
            "bias": TritonWarmupTensor(key.dtype, shape=(key.block,)),
            "out": rows(key.out_row_stride),
            "negate": key.negate,
        }

    @kernel_launcher
    def __call__(self, x, bias, out, negate=False):
        """Add `bias` to each row of `x`."""
        num_rows, width = x.shape
        key = self.dispatch(
            width=width,
            dtype=x.dtype,
            negate=negate,
            x_row_stride=triton_scalar_specialization_rep(x.stride(0)),
            out_row_stride=triton_scalar_specialization_rep(out.stride(0)),
        )
        num_warps = 1 if key.block < 64 else 2
        return (
            (num_rows,),
            {"width": width, "BLOCK": key.block, "NEGATE": negate, "num_warps": num_warps},
            out,
        )


add_rows = AddRowsKernel()
