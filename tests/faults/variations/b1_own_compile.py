"""Buckets of a class that derives from another one and compiles in a way of its own."""

from dataclasses import dataclass

from jitwarm.contract import JitKernel
from jitwarm.faults import Envelope, Expected, Fault, Ints, WarmupIntRange

MOST = 96


class Gemm(JitKernel):
    @dataclass(frozen=True)
    class CompileKey:
        band: int
        split: bool

    def dispatch(self, *, tokens):
        return self.CompileKey(tokens // 32, tokens < 8)

    def get_warmup_keys(self, tokens):
        return self._trace_dispatch(self.dispatch)(tokens=tokens)

    def compile(self, key):
        self._compiled_cache[key] = object()


class GemmOfAModel(Gemm):
    def dispatch(self, *, tokens):
        return super().dispatch(tokens=tokens)


gemm = GemmOfAModel()
TRAFFIC = Envelope(
    gemm, "tokens of a step", {"tokens": Ints(1, MOST)}, lambda tokens: {"tokens": tokens}
)

FAULT = Fault(
    "multiples of 32 leave out the small batches and those below 32",
    kernel=gemm,
    register={"tokens": WarmupIntRange(32, MOST + 1, 32)},
    launches=TRAFFIC,
    expected=[
        Expected("MISS", smallest="tokens=1", count=1),
        Expected("MISS", smallest="tokens=8", count=1),
    ],
)
TWIN = Fault(
    "the change points themselves",
    kernel=gemm,
    register={"tokens": (1, 8, 32, 64, 96)},
    launches=TRAFFIC,
)
