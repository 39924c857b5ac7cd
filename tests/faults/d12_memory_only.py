"""D12: a compiler that keeps its binaries in memory only: each process compiles all of them."""

from dataclasses import dataclass

from jitwarm.faults import Expected, Fault, StubKernel


class OnDisk(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        tile: int

    def dispatch(self, *, tile):
        return self.CompileKey(tile)

    def get_warmup_keys(self):
        return [self.CompileKey(tile) for tile in (16, 32, 64)]


class InMemory(OnDisk):
    persists = False


in_memory, on_disk = InMemory(), OnDisk()

FAULT = Fault(
    "nothing is reused across processes",
    kernel=in_memory,
    processes=2,
    expected=[Expected("DUP", kernel="InMemory")],
)
TWIN = Fault("the second process reads from disk", kernel=on_disk, processes=2)
