"""out = factor * x in CuTe DSL, the factor a constant of the compiled kernel."""

from dataclasses import dataclass

import cutlass
import torch
from cutlass import cute

from jitwarm.contract import CuTeDSLJitKernel as VllmCuTeDSLJitKernel
from jitwarm.contract import cutedsl_kernel_launcher


class ScaleVector:
    """One block a launch; each thread takes every `threads`-th element."""

    def __init__(self, factor: float, threads: int):
        self.factor = factor
        self.threads = threads

    @cute.jit
    def __call__(self, x: cute.Tensor, out: cute.Tensor, stream):
        self.kernel(x, out).launch(grid=(1, 1, 1), block=(self.threads, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, x: cute.Tensor, out: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        index = thread
        while index < x.shape[0]:
            out[index] = x[index] * self.factor
            index += self.threads


class ScaleVectorKernel(VllmCuTeDSLJitKernel["ScaleVectorKernel.CompileKey"]):
    @dataclass(frozen=True)
    class CompileKey:
        factor: float
        threads: int

    def dispatch(self, *, factor, n) -> CompileKey:
        threads = 32 if n <= 32 else 128
        return self.CompileKey(factor=factor, threads=threads)

    def get_warmup_keys(self, vllm_config) -> list[CompileKey]:
        max_num_seqs = vllm_config.scheduler_config.max_num_seqs
        return self._trace_dispatch(self.dispatch)(factor=(0.5, 2.0), n=(1, max_num_seqs))

    def kernel(self, key: CompileKey):
        return ScaleVector(key.factor, key.threads)

    def warmup_inputs(self, key: CompileKey) -> tuple:
        n = cute.sym_int32()
        vector = [
            cute.runtime.make_fake_compact_tensor(cutlass.Float32, (n,), assumed_align=4)
            for _ in range(2)
        ]
        return tuple(vector)

    @cutedsl_kernel_launcher
    def __call__(self, x: torch.Tensor, factor: float):
        out = torch.empty_like(x)
        return self.dispatch(factor=factor, n=x.shape[0]), (x, out), out


scale_vector = ScaleVectorKernel()
