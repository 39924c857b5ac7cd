"""Kernels of all kinds for the tests of the proof."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

from jitwarm.contract import (
    CuTeDSLJitKernel,
    JitKernel,
    TritonJitKernel,
    TritonWarmupTensor,
    WarmupIntRange,
    kernel_launcher,
    triton_kernel_dispatcher_with_warmup,
    triton_scalar_specialization_rep,
)
from jitwarm.declare import NoKeys, TensorSpec, WarmupChoices, declare, launch

X, ODD = TensorSpec("float32"), TensorSpec("float32", aligned=False)


@triton.jit
def copy(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at.to(tl.float32), mask=at < n)


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at) + n, mask=at < n)


@triton.jit(do_not_specialize=["many"], do_not_specialize_on_alignment=["y_ptr"])
def numbers(n, m: tl.int64, many, x_ptr, y_ptr, FLAG: tl.constexpr = False):
    tl.store(x_ptr, n + m + many)
    tl.store(y_ptr, n + m + many)


@triton.jit(do_not_specialize=["known"])
def careless(x_ptr, unused_ptr, unused, known, USELESS: tl.constexpr):
    tl.store(x_ptr, 1)


@declare(copy)
def Copy(*, n=(1, 16, 17), block=(16,), x=(X, ODD)):
    return launch(
        x_ptr=WarmupChoices(*x), n=WarmupChoices(*n), BLOCK=WarmupChoices(*block), num_warps=8
    )


@declare(add)
def Nothing(reason="no layer adds"):
    return NoKeys(reason)


@triton.jit(do_not_specialize=["n"])
def _scale(x_ptr, OUT, n, x_stride0, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(OUT + at, tl.load(x_ptr + at * x_stride0, mask=at < n), mask=at < n)


class ScaleKernel(TritonJitKernel["ScaleKernel.CompileKey"]):
    """Complete up to 64 elements: block, class of the stride, alignment."""

    kernel = _scale
    most = 64

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        block: int
        stride_class: int
        aligned: bool

    def dispatch(self, *, n, stride, aligned):
        stride_class = triton_scalar_specialization_rep(stride)
        return self.CompileKey(triton.next_power_of_2(n), stride_class, aligned)

    def get_warmup_keys(self, strides=(1, 2, 16), aligned=(True, False)):
        return self._trace_dispatch(self.dispatch)(
            n=WarmupIntRange(1, self.most + 1), stride=strides, aligned=aligned
        )

    def warmup_inputs(self, key):
        return {
            "x": TritonWarmupTensor("float32", aligned=key.aligned, strides=(key.stride_class,)),
            "out": TritonWarmupTensor("float32"),
            "n": key.block,
        }

    @kernel_launcher
    def __call__(self, x, out, n):
        if n == 0:
            return None, {}
        key = self.dispatch(n=n, stride=x.stride(0), aligned=x.data_ptr() % 16 == 0)
        return (triton.cdiv(n, key.block),), {"BLOCK": key.block}, out


class ForgetfulKernel(ScaleKernel):
    """Its key does not say whether the pointer is aligned."""

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        block: int
        stride_class: int

    def dispatch(self, *, n, stride, aligned):
        return self.CompileKey(triton.next_power_of_2(n), triton_scalar_specialization_rep(stride))

    def warmup_inputs(self, key):
        return {
            "x": TritonWarmupTensor("float32", strides=(key.stride_class,)),
            "out": TritonWarmupTensor("float32"),
            "n": key.block,
        }


class LosingKernel(ScaleKernel):
    """Its inputs lose the block, so `__call__` computes another one."""

    def warmup_inputs(self, key):
        return super().warmup_inputs(key) | {"n": 16}


def scale_call(n, stride=1, offset=0):
    """The arguments of a call of `ScaleKernel` on a view."""
    x = TensorSpec("float32", aligned=offset % 4 == 0, shape=(n,), strides=(stride,))
    return {"x": x, "out": TensorSpec("float32", shape=(max(n, 1),)), "n": n}


def copies():
    return {"x": TritonWarmupTensor("float32"), "rows": WarmupChoices(1, 16)}


@triton_kernel_dispatcher_with_warmup(warmup_inputs=copies, kernel=copy)
def copied(x, rows):
    """Its names are not those of the kernel."""
    return (1,), {"n": rows, "BLOCK": 16}


class BandKernel(JitKernel["BandKernel.CompileKey"]):
    """A compile of its own: a key for each band of 16 tokens."""

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        bands: int

    def dispatch(self, *, tokens):
        return self.CompileKey(-(-tokens // 16))

    def get_warmup_keys(self, most=64):
        return self._trace_dispatch(self.dispatch)(tokens=WarmupIntRange(16, most + 1, 16))

    def compile(self, key):
        self._compiled_cache[key] = key


class SortKernel(CuTeDSLJitKernel["SortKernel.CompileKey"]):
    """A CuTe DSL kernel; nothing here compiles it."""

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        width: int

    def dispatch(self, *, width):
        return self.CompileKey(width)

    def get_warmup_keys(self, widths=(1024, 2048)):
        return [self.CompileKey(width) for width in widths]

    def kernel(self, key):
        raise NotImplementedError

    def warmup_inputs(self, key):
        raise NotImplementedError

    @kernel_launcher
    def __call__(self, x):
        return self.CompileKey(x.shape[0]), (x,)


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def tuned(x_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at, mask=at < n)


class TunedKernel(TritonJitKernel["TunedKernel.CompileKey"]):
    """Block size and evenness come from Triton's own wrappers."""

    kernel = tuned

    @dataclass(frozen=True)
    class CompileKey:
        n: int

    def get_warmup_keys(self, numbers=(4, 5)):
        return [self.CompileKey(n) for n in numbers]

    def warmup_inputs(self, key):
        return {"x": TritonWarmupTensor("int32"), "n": key.n}

    @kernel_launcher
    def __call__(self, x, n):
        return (1,), {}
