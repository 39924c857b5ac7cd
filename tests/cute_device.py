"""Device code of `cute_subjects`; importing this needs CuTe DSL."""

from __future__ import annotations

import cutlass
from cutlass import cute


class Add:
    """y += x * factor for the first `n` elements; `n` and `factor` are constants of the kernel."""

    def __init__(self, n, factor):
        self.n, self.factor = n, factor

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream):
        self.add(x, y).launch(grid=(1, 1, 1), block=(self.n, 1, 1), stream=stream)

    @cute.kernel
    def add(self, x: cute.Tensor, y: cute.Tensor):
        i, _, _ = cute.arch.thread_idx()
        y[i] = y[i] + x[i] * self.factor


class AddByName(Add):
    """The same with an argument that has a default, which no object file keeps."""

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, m: cutlass.Int32 = 1, stream=None):
        self.add(x, y).launch(grid=(1, 1, 1), block=(self.n, 1, 1), stream=stream)


@cute.jit
def double(x: cute.Tensor, n: cutlass.Constexpr):
    """A function of the host: no kernel, so it can be called without a GPU."""
    for i in cutlass.range_constexpr(n):
        x[i] = x[i] * 2


def fake_vector():
    length = cute.sym_int32(divisibility=8)
    return cute.runtime.make_fake_compact_tensor(cutlass.Float32, (length,), assumed_align=16)


def fake_stream():
    return cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
