"""A class whose dispatch remembers the largest batch, really launched."""

from dataclasses import dataclass

from jitwarm.faults import Expected, Fault, StubKernel


class Workspace(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        rows: int

    def __init__(self, *, remembers):
        self.remembers, self.largest = remembers, 0

    def dispatch(self, *, rows):
        self.largest = max(self.largest, rows)
        return self.CompileKey(self.largest if self.remembers else rows)

    def get_warmup_keys(self):
        return [self.CompileKey(64), self.CompileKey(4096)]


grows, stays = Workspace(remembers=True), Workspace(remembers=False)
BATCHES = [{"rows": 64}, {"rows": 4096}]


def large_then_middle():
    grows(rows=4096)
    grows(rows=8192)
    grows(rows=64)


FAULT = Fault(
    "64 rows after 4096 are another key than before",
    kernel=grows,
    launches=BATCHES,
    expected=[Expected("KEY-UNSTABLE", kernel="Workspace", field="rows", count=1)],
)
GROWN = Fault(
    "a prefill of 8192 rows, and each later batch needs its key",
    kernel=grows,
    launches=large_then_middle,
    expected=[Expected("MISS", kernel="Workspace", field="rows", seen="8192", count=1)],
)
TWIN = Fault("the batch's own rows", kernel=stays, launches=BATCHES)
