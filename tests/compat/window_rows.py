"""Copies a window of each row: rows of inputs that go together, predicates, and cases."""

from dataclasses import dataclass

import triton
import triton.language as tl

from jitwarm.contract import TritonJitKernel as VllmTritonJitKernel
from jitwarm.contract import (
    TritonPointerInputVariant,
    WarmupChoices,
    WarmupIntRange,
    _when,
    kernel_launcher,
    zip_inputs,
)


@triton.jit(do_not_specialize=["X_STRIDE"])
def _window_rows_kernel(
    X,
    X_STRIDE,
    OUT_PTR,
    lens_ptr,
    WIDTH: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    row = tl.program_id(0)
    at = tl.load(lens_ptr + row)
    column = tl.arange(0, WIDTH)
    mask = (column >= at - LEFT) & (column <= at + (0 if CAUSAL else RIGHT))
    value = tl.load(X + row * X_STRIDE + column, mask=mask, other=0.0)
    tl.store(OUT_PTR + row * WIDTH + column, value)


class WindowRowsKernel(VllmTritonJitKernel["WindowRowsKernel.CompileKey"]):
    kernel = _window_rows_kernel

    @dataclass(frozen=True)
    class CompileKey:
        width: int
        window: tuple[int, int]
        causal: bool
        pointers: TritonPointerInputVariant

    def dispatch(self, *, width, window, causal, lens_aligned) -> CompileKey:
        right = 0 if causal else window[1]
        pointers = TritonPointerInputVariant.from_alignment(lens=lens_aligned)
        return self.CompileKey(
            width=max(16, width), window=(window[0], right), causal=causal, pointers=pointers
        )

    def _window_fits(self, width, window, causal):
        return window[0] + window[1] < width and (causal or window[1] > 0)

    def _decode_cases(self, vllm_config, *, lens_aligned):
        block_size = vllm_config.cache_config.block_size
        log_width = WarmupIntRange(4, 7)
        width = 2**log_width
        _when(width <= block_size)
        left = WarmupChoices(1, block_size // 2)
        _when(left < width)
        return dict(  # noqa: C408 - as the field writes it
            width=width, window=(left, 0), causal=True, lens_aligned=lens_aligned
        )

    def get_warmup_keys(self, vllm_config) -> list[CompileKey]:
        prefill = self._trace_dispatch(self.dispatch)(
            zip_inputs(
                {"width": 64, "window": (8, 8)},
                {"width": 64, "window": (32, 32)},
                {"width": 128, "window": (64, 0)},
                {"width": 128, "window": (32, 16)},
            ),
            causal=(True, False),
            lens_aligned=True,
            _when=self._window_fits,
        )
        decode = [
            self.compile_key(case)
            for aligned in (True, False)
            for case in self._expand_warmup_cases(
                self._decode_cases, vllm_config, lens_aligned=aligned
            )
        ]
        return prefill + decode

    def warmup_inputs(self, key: CompileKey) -> dict:
        return {
            "x": TritonPointerInputVariant.from_alignment(x=True).pointer(
                "x", "float16", (2, key.width)
            ),
            "out": TritonPointerInputVariant.from_alignment(out=True).pointer("out", "float16"),
            "lens": key.pointers.pointer("lens", "int32", (2,)),
            "width": key.width,
            "window": key.window,
            "causal": key.causal,
        }

    @kernel_launcher
    def __call__(self, x, out, lens, *, width, window, causal):
        key = self.dispatch(
            width=width, window=window, causal=causal, lens_aligned=lens.data_ptr() % 16 == 0
        )
        grid = (lens.size(0),) if lens.size(0) else None
        left, right = key.window
        return (
            grid,
            {"WIDTH": key.width, "LEFT": left, "RIGHT": right, "CAUSAL": key.causal},
            out,
        )


window_rows = WindowRowsKernel()
