"""C1: a launcher asks its input for `.ndim`, and the warm-up's stand-in has none."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from jitwarm.contract import TritonJitKernel, kernel_launcher
from jitwarm.faults import Expected, Fault, TensorSpec


@triton.jit
def _halve(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) / 2)


class Fake:
    """What a hand-written stand-in has: enough for most launchers."""

    dtype = torch.float32
    shape = (4, 64)

    def data_ptr(self):
        return 0


class Halve(TritonJitKernel):
    kernel = _halve

    @dataclass(frozen=True)
    class CompileKey:
        block: int

    def dispatch(self, *, block):
        return self.CompileKey(block)

    def get_warmup_keys(self):
        return [self.CompileKey(64), self.CompileKey(128)]

    def stand_in(self):
        return Fake()

    def warmup_inputs(self, key):
        x = self.stand_in() if key.block == 64 else TensorSpec("float32", shape=(4, 64))
        return {"x": x, "out": TensorSpec("float32"), "block": key.block}

    @kernel_launcher
    def __call__(self, x, out, block):
        assert x.ndim == 2
        return (1,), {"BLOCK": self.dispatch(block=block).block}


class HalveWithSpec(Halve):
    def stand_in(self):
        return TensorSpec("float32", shape=(4, 64))


halve, halve_with_spec = Halve(), HalveWithSpec()


def serve_128():
    halve(torch.zeros(4, 64), torch.zeros(4, 64), block=128)


FAULT = Fault(
    "one key crashes, the other is warmed, and start-up lives",
    kernel=halve,
    launches=serve_128,
    expected=[
        Expected("WARM-CRASH", kernel="Halve", seen="AttributeError", message="ndim", count=1)
    ],
)
TWIN = Fault(
    "a stand-in with everything that a launcher asks for",
    kernel=halve_with_spec,
    launches=lambda: halve_with_spec(torch.zeros(4, 64), torch.zeros(4, 64), block=64),
)
