"""C7: a compile leaves the module to the first launch, which waits 20 ms for it."""

from dataclasses import dataclass

from jitwarm.faults import Expected, Fault, StubKernel


class EagerTile(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        tile: int

    def dispatch(self, *, tile):
        return self.CompileKey(tile)

    def get_warmup_keys(self):
        return [self.CompileKey(16), self.CompileKey(32)]


class LazyTile(EagerTile):
    loads_lazily = True
    load_ms = 20.0


lazy, eager = LazyTile(), EagerTile()


def both_tiles(kernel):
    kernel(tile=16)
    kernel(tile=32)
    kernel(tile=32)


FAULT = Fault(
    "compiled, and not loaded before the first request",
    kernel=lazy,
    launches=lambda: both_tiles(lazy),
    expected=[Expected("NOT-EXECUTED", message="20")],
)
TWIN = Fault("loaded at start-up", kernel=eager, launches=lambda: both_tiles(eager))
