"""B2: a half-open range leaves out the band of the largest batch itself."""

from dataclasses import dataclass

from jitwarm.faults import Envelope, Expected, Fault, Ints, StubKernel, WarmupIntRange

MOST = 256


class MoeGemm(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        band: int

    def dispatch(self, *, tokens):
        return self.CompileKey(-(-tokens // 16))

    def get_warmup_keys(self, stop):
        return self._trace_dispatch(self.dispatch)(tokens=WarmupIntRange(16, stop, 16))


moe = MoeGemm()
TRAFFIC = Envelope(
    moe, "tokens of a step", {"tokens": Ints(1, MOST)}, lambda tokens: {"tokens": tokens}
)

FAULT = Fault(
    "range(16, max, 16) ends before max",
    kernel=moe,
    register={"stop": MOST},
    launches=TRAFFIC,
    expected=[Expected("MISS", field="band", seen="16", smallest="tokens=241", count=1)],
)
TWIN = Fault("range(16, max + 1, 16)", kernel=moe, register={"stop": MOST + 1}, launches=TRAFFIC)
