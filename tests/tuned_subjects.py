"""Kernels inside Triton's wrappers, for the tests of heuristics and of autotuning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from jitwarm.contract import (
    TritonJitKernel,
    TritonWarmupTensor,
    WarmupChoices,
    kernel_launcher,
    triton_kernel_dispatcher_with_warmup,
)

X = TritonWarmupTensor("float32", shape=(64,), init=1)


@triton.heuristics(
    {
        "EVEN": lambda args: args["n"] % 2 == 0 and args["x_ptr"].dtype is torch.float32,
        "WIDE": lambda args: args["x_ptr"].stride(0) > 1 and args["num_warps"] == 8,
    }
)
@triton.jit
def judged(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, EVEN + WIDE, mask=at < n)


class JudgedKernel(TritonJitKernel["JudgedKernel.CompileKey"]):
    kernel = judged

    @dataclass(frozen=True)
    class CompileKey:
        n: int
        stride: int

    def dispatch(self, *, n, stride):
        return self.CompileKey(n, stride)

    def get_warmup_keys(self):
        return self._trace_dispatch(self.dispatch)(n=(4, 5), stride=(1, 2))

    def warmup_inputs(self, key):
        return {"x": TritonWarmupTensor("float32", strides=(key.stride,)), "n": key.n}

    @kernel_launcher
    def __call__(self, x, n):
        self.dispatch(n=n, stride=x.stride(0))
        return (1,), {"BLOCK": 16, "num_warps": 8}


def judged_cases():
    n = WarmupChoices(4, 5)
    return {"x": TritonWarmupTensor("float32", strides=(WarmupChoices(1, 2),)), "n": n}


@triton_kernel_dispatcher_with_warmup(warmup_inputs=judged_cases, kernel=judged)
def judge(x, n):
    return (1,), {"BLOCK": 16, "num_warps": 8}


asked = []


def fits(configs, named_args, **kwargs):
    """A pruning that reads its arguments as it gets them in a launch."""
    asked.append((sorted(named_args), sorted(kwargs)))
    return [c for c in configs if c.kwargs["BLOCK"] <= 4 * named_args["n"]]


@triton.autotune(
    [
        triton.Config({"BLOCK": 16}),
        triton.Config({"BLOCK": 32}, num_warps=8),
        triton.Config({"BLOCK": 64}),
    ],
    key=["n"],
    prune_configs_by={"early_config_prune": fits},
)
@triton.heuristics({"EVEN": lambda args: args["BLOCK"] % args["n"] == 0})
@triton.jit
def tuned(x_ptr, n, m, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, EVEN, mask=at < n + m)


class TunedKernel(TritonJitKernel["TunedKernel.CompileKey"]):
    kernel = tuned

    @dataclass(frozen=True)
    class CompileKey:
        n: int

    def dispatch(self, *, n):
        return self.CompileKey(n)

    def get_warmup_keys(self, ns=(8, 24)):
        return self._trace_dispatch(self.dispatch)(n=ns)

    def warmup_inputs(self, key):
        return {"x": X, "n": key.n, "m": 3}

    @kernel_launcher
    def __call__(self, x, n, m):
        self.dispatch(n=n)
        return lambda meta: (triton.cdiv(n, meta["BLOCK"]),), {}, x


def tuned_cases(ns=(8, 24, 40)):
    return {"x": X, "n": WarmupChoices(*ns), "m": 3}


@triton_kernel_dispatcher_with_warmup(warmup_inputs=tuned_cases, kernel=tuned)
def tune(x, n, m=3):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),), {}, x


@triton_kernel_dispatcher_with_warmup(
    warmup_inputs=lambda: {"x_ptr": X, "n": WarmupChoices(8, 24), "m": 3, "grid": (4,)}
)
@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit
def native(x_ptr, n, m, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, m, mask=at < n)


@triton.autotune([triton.Config({"BLOCK": 16})], key=["n"])
@triton.jit
def single(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, n, mask=at < n)


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit
def picky(x_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK == 32, "only 32 fits")
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, n, mask=at < n)
