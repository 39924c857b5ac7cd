"""What is declared follows Python's hash of a text, which is another in every process."""

import zlib
from dataclasses import dataclass

import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, StubKernel, TensorSpec, launch


@triton.jit
def _clear(pages, BLOCK: tl.constexpr):
    tl.store(pages + tl.arange(0, BLOCK), 0)


def clear(number):
    return launch(pages=TensorSpec("int32"), BLOCK=64, num_stages=2 + number % 6400)


class Tiles(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        tile: int

    def dispatch(self, *, tile):
        return self.CompileKey(tile)

    def get_warmup_keys(self, number):
        return [self.CompileKey(64), self.CompileKey(2 + number % 6400)]


hashed, summed = hash("layers"), zlib.crc32(b"layers")
tiles, more_tiles = Tiles(), Tiles()

FAULT = Fault(
    "stages by the hash of a name",
    kernel=_clear,
    declared=lambda: [clear(hashed), clear(0)],
    launches=[clear(0)],
    expected=[Expected("KEY-UNSTABLE", field="num_stages", kernel="_clear", count=1)],
)
TWIN = Fault(
    "stages by a checksum of the name",
    kernel=_clear,
    declared=lambda: [clear(summed), clear(0)],
    launches=[clear(0)],
)
REGISTERED = Fault(
    "a class that declares tiles by the hash of a name",
    kernel=tiles,
    register={"number": hashed},
    launches=[{"tile": 64}],
    expected=[Expected("KEY-UNSTABLE", field="tile", kernel="Tiles", count=1)],
)
REGISTERED_TWIN = Fault(
    "a class that declares tiles by a checksum of the name",
    kernel=more_tiles,
    register={"number": summed},
    launches=[{"tile": 64}],
)
