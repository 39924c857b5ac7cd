"""B7: a key holds a representative size, and its warm-up launches at that size: another block."""

from dataclasses import dataclass

import triton
import triton.language as tl

from jitwarm.contract import TritonJitKernel, kernel_launcher
from jitwarm.faults import Expected, Fault, TensorSpec


@triton.jit
def _normalise(x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * 2)


def block_of(hidden):
    return min(triton.next_power_of_2(hidden), 1024)


class RepresentativeNorm(TritonJitKernel):
    """A hidden size of 4096 is kept as 16, because both are multiples of 16."""

    kernel = _normalise

    @dataclass(frozen=True)
    class CompileKey:
        hidden: int
        block: int

    def dispatch(self, *, hidden):
        kept = 16 if hidden % 16 == 0 else 17
        return self.CompileKey(kept, block_of(hidden))

    def get_warmup_keys(self):
        return [self.dispatch(hidden=4096)]

    def warmup_inputs(self, key):
        return {"x": TensorSpec("float32"), "hidden": key.hidden}

    @kernel_launcher
    def __call__(self, x, hidden):
        key = self.dispatch(hidden=hidden)
        return (-(-hidden // key.block),), {"BLOCK": key.block}


class BlockNorm(RepresentativeNorm):
    """The key holds the block alone, and its inputs lead back to it."""

    @dataclass(frozen=True)
    class CompileKey:
        block: int

    def dispatch(self, *, hidden):
        return self.CompileKey(block_of(hidden))

    def warmup_inputs(self, key):
        return {"x": TensorSpec("float32"), "hidden": key.block}


representative_norm, block_norm = RepresentativeNorm(), BlockNorm()
TRAFFIC = [{"x": TensorSpec("float32"), "hidden": 4096}]

FAULT = Fault(
    "the inputs of a key lead to another key",
    kernel=representative_norm,
    launches=TRAFFIC,
    expected=[
        Expected("KEY-INCOMPLETE", field="block", warmed="16", seen="1024", count=1),
        Expected("MISS", field="BLOCK", warmed="constexpr=16", seen="constexpr=1024", count=1),
    ],
)
TWIN = Fault("the inputs of a key lead back", kernel=block_norm, launches=TRAFFIC)
