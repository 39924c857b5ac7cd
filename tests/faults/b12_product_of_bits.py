"""B12: seven bits of pointer alignment, 64 sizes and three dtypes, all multiplied."""

from dataclasses import dataclass

from jitwarm.faults import Budget, Envelope, Expected, Fault, Ints, StubKernel, Values

DTYPES = ("bfloat16", "float16", "float8_e4m3fn")


class FusedMoe(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        aligned: int
        size: int
        dtype: str

    def dispatch(self, *, aligned, size, dtype):
        return self.CompileKey(aligned, size, dtype)

    def get_warmup_keys(self, masks):
        return self._trace_dispatch(self.dispatch)(
            aligned=tuple(masks), size=tuple(range(64)), dtype=DTYPES
        )


moe = FusedMoe()
# Buffers come from one allocator: all seven pointers are aligned, or the view's two are not.
REACHED = (0b1111111, 0b1111100)
TRAFFIC = Envelope(
    moe,
    "experts",
    {"aligned": Values(*REACHED), "size": Ints(0, 63), "dtype": Values(*DTYPES)},
    lambda aligned, size, dtype: {"aligned": aligned, "size": size, "dtype": dtype},
)

FAULT = Fault(
    "24576 keys at half a second",
    kernel=moe,
    register={"masks": range(128)},
    launches=TRAFFIC,
    budget=Budget(seconds=600),
    expected=[
        Expected(
            "BUDGET",
            message="24576 keys are planned, 12288.0 s, 1200 are allowed; launches reach 384 of "
            "them (1.6%)",
            count=1,
        ),
        Expected("UNREACHED", field="aligned", count=1),
    ],
)
TWIN = Fault(
    "the alignments that buffers can have",
    kernel=moe,
    register={"masks": REACHED},
    launches=TRAFFIC,
    budget=Budget(seconds=600),
)
