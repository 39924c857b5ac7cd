"""B1: the dispatch changes each 16 tokens, the warm-up tries each 128th."""

from dataclasses import dataclass

from jitwarm.faults import Envelope, Expected, Fault, Ints, StubKernel, WarmupIntRange

MOST = 1024


class GroupedGemm(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        band: int

    def dispatch(self, *, tokens):
        return self.CompileKey(-(-tokens // 16))

    def get_warmup_keys(self, step):
        return self._trace_dispatch(self.dispatch)(tokens=WarmupIntRange(step, MOST + 1, step))


gemm = GroupedGemm()
TRAFFIC = Envelope(
    gemm, "tokens of a step", {"tokens": Ints(1, MOST)}, lambda tokens: {"tokens": tokens}
)

FAULT = Fault(
    "7 of 8 bands are cold",
    kernel=gemm,
    register={"step": 128},
    launches=TRAFFIC,
    expected=[
        Expected("MISS", field="band", count=56),
        Expected("MISS", field="band", seen="1", smallest="tokens=1"),
        Expected("MISS", field="band", seen="9", smallest="tokens=129"),
    ],
)
TWIN = Fault("a step a band", kernel=gemm, register={"step": 16}, launches=TRAFFIC)
