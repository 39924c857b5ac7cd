"""CuTe DSL kernels that the tests warm; importing this needs no CuTe DSL."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from jitwarm.contract import CuTeDSLJitKernel, cutedsl_kernel_launcher, kernel_launcher

PARENT = os.getpid()


@dataclass(frozen=True)
class Key:
    n: int
    factor: float = 1.0


class AddKernel(CuTeDSLJitKernel[Key]):
    """Real device code: `cute_device.Add`."""

    CompileKey = Key

    def dispatch(self, *, n, factor=1.0):
        return Key(n, factor)

    def get_warmup_keys(self, sizes=(32, 64)):
        return self._trace_dispatch(self.dispatch)(n=list(sizes))

    def kernel(self, key):
        import cute_device

        return cute_device.Add(key.n, key.factor)

    def warmup_inputs(self, key):
        import cute_device

        return cute_device.fake_vector(), cute_device.fake_vector()

    @cutedsl_kernel_launcher
    def __call__(self, x, y, *, n, factor=1.0):
        return self.dispatch(n=n, factor=factor), (x, y), y


class ByNameKernel(AddKernel):
    def kernel(self, key):
        import cute_device

        return cute_device.AddByName(key.n, key.factor)

    def warmup_inputs(self, key):
        return (*super().warmup_inputs(key), 1)


def in_child():
    return os.getpid() != PARENT


class KilledKernel(AddKernel):
    """Its children are killed in the middle of a compile: all of `n` 32."""

    signal = signal.SIGKILL

    def kernel(self, key):
        if in_child() and key.n == 32:
            os.kill(os.getpid(), self.signal)
        return super().kernel(key)


class CrashingKernel(KilledKernel):
    signal = signal.SIGSEGV


class HangingKernel(AddKernel):
    def kernel(self, key):
        if in_child() and key.n == 32:
            time.sleep(600)
        return super().kernel(key)


class BrokenKernel(AddKernel):
    def kernel(self, key):
        if key.n == 32:
            raise LookupError(f"no kernel for {key.n}")
        return super().kernel(key)


class Executor:
    """Stands for what a compiler returns, and keeps its launches."""

    def __init__(self, key):
        self.key, self.launches = key, []

    def __call__(self, *args):
        self.launches.append(args)
        return ("result", *args)


class OwnCompileKernel(CuTeDSLJitKernel[Key]):
    """Compiles without a compiler."""

    CompileKey = Key
    storing = True

    def __init__(self):
        self.compiled = []

    def dispatch(self, *, n):
        return Key(n)

    def get_warmup_keys(self):
        return [Key(1), Key(2)]

    def kernel(self, key):
        raise NotImplementedError

    def warmup_inputs(self, key):
        raise NotImplementedError

    def compile(self, key):
        self.compiled.append(key)
        if self.storing:
            self._compiled_cache[key] = Executor(key)

    @kernel_launcher
    def __call__(self, n, *rest):
        """The specification is (key, (n,)) and whatever else is passed."""
        return (self.dispatch(n=n), (n,), *rest)


class ScratchKernel(AddKernel):
    """Says what it can be launched with once, so that warm-up can load it; needs a GPU."""

    def scratch_launch(self, key):
        import torch

        return tuple(torch.zeros(key.n, device="cuda") for _ in range(2))


class NativeKernel(AddKernel):
    """Compiled for the compiler's own calling convention: it loads on request."""

    compile_options = ""
    use_tvm_ffi_env_stream = False


add = AddKernel()
