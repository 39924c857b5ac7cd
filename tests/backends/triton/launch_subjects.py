"""Kernels that compile, for the tests that compile."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def broken(x_ptr, n):
    tl.store(x_ptr, n.no_such_attribute)


@triton.autotune([triton.Config({"BLOCK": block}) for block in (16, 32)], key=["n"])
@triton.jit
def tuned(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at, mask=at < n)
