"""A class that numbers its keys in the order in which they are asked for; 1 and True as one key."""

from dataclasses import dataclass

from jitwarm.faults import Expected, Fault, KeyFunction, StubKernel


class Numbered(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        block: int
        number: int

    def __init__(self, *, counts):
        self.counts, self.known = counts, {}

    def dispatch(self, *, block):
        number = self.known.setdefault(block, len(self.known)) if self.counts else 0
        return self.CompileKey(block, number)

    def get_warmup_keys(self):
        return [self.dispatch(block=block) for block in (64, 128)]


counting, plain = Numbered(counts=True), Numbered(counts=False)
LAUNCHES = [{"block": 128}, {"block": 64}]


def flagged(*, causal):
    return (causal, 64)


FAULT = Fault(
    "numbers in the order of requests",
    kernel=counting,
    launches=LAUNCHES,
    expected=[Expected("KEY-UNSTABLE", kernel="Numbered", field="number", count=1)],
)
EQUAL = Fault(
    "a dictionary of kernels takes 1 and True for one key",
    kernel=KeyFunction("flagged", flagged),
    declared=[{"causal": 1}, {"causal": True}],
    launches=[{"causal": True}],
    expected=[
        Expected("KEY-UNSTABLE", kernel="flagged", field="key0", warmed="1", seen="True", count=1)
    ],
)
TWIN = Fault("no number", kernel=plain, launches=LAUNCHES)
