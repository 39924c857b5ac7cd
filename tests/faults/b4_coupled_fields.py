"""B4: rows of three coupled fields: two that no launch uses, two that launches use are missing."""

from dataclasses import dataclass

from jitwarm.faults import Envelope, Expected, Fault, StubKernel, Values


class PackCandidates(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        top_k: int
        block: int
        decode: bool

    def dispatch(self, *, index_topk, decode):
        # Decode of a model without an indexer takes no candidates; the block follows from both.
        top_k = index_topk or 0
        return self.CompileKey(top_k, 256 if decode or top_k <= 1024 else 1024, decode)

    def get_warmup_keys(self, rows):
        return [self.CompileKey(*row) for row in rows]


pack = PackCandidates()
TRAFFIC = Envelope(
    pack,
    "indexer",
    {"index_topk": Values(2048, 1024, 0), "decode": Values(False, True)},
    lambda index_topk, decode: {"index_topk": index_topk, "decode": decode},
    where=lambda index_topk, decode: (index_topk > 0) | decode,
)

FAULT = Fault(
    "the rows of another model",
    kernel=pack,
    register={
        "rows": (
            (2048, 1024, False),
            (2048, 256, True),
            (1024, 256, True),
            (1024, 1024, False),
            (512, 256, True),
        )
    },
    launches=TRAFFIC,
    expected=[
        Expected("UNREACHED", count=2),
        Expected("UNREACHED", field="top_k", message="never 512"),
        Expected("MISS", count=2),
        Expected("MISS", smallest="index_topk=1024"),
        Expected("MISS", smallest="index_topk=0"),
    ],
)
TWIN = Fault(
    "the rows of the dispatch",
    kernel=pack,
    register={
        "rows": (
            (2048, 1024, False),
            (2048, 256, True),
            (1024, 256, False),
            (1024, 256, True),
            (0, 256, True),
        )
    },
    launches=TRAFFIC,
)
