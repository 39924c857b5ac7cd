"""C5: a tuning cache on disk says "done", so the warm-up of a new process compiles nothing."""

from dataclasses import dataclass

from jitwarm.faults import Expected, Fault, StubKernel


class TunedGemm(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        tile: int

    def dispatch(self, *, rows):
        return self.CompileKey(64 if rows < 64 else 128)

    def get_warmup_keys(self):
        return [self.CompileKey(64), self.CompileKey(128)]


gemm = TunedGemm()
TUNED_ON_DISK = {64: "tile 64, 3 stages", 128: "tile 128, 4 stages"}


def tune_what_is_not_tuned():
    for rows in (8, 512):
        key = gemm.dispatch(rows=rows)
        if key.tile not in TUNED_ON_DISK:  # the compile happens inside of the tuning
            gemm.compile(key)


def compile_what_is_tuned():
    for rows in (8, 512):
        gemm.compile(gemm.dispatch(rows=rows))


FAULT = Fault(
    "skipped as warm, and nothing is there",
    kernel=gemm,
    warmup=tune_what_is_not_tuned,
    expected=[Expected("MISS", kernel="TunedGemm", warmed="0 of 2 keys", count=1)],
)
TWIN = Fault(
    "the compile cache is asked, not the tuning cache",
    kernel=gemm,
    warmup=compile_what_is_tuned,
    launches=lambda: gemm(rows=512),
)
