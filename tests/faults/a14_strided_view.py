"""A14: an attention key asks whether its query is contiguous; in eager mode it may be a view."""

from dataclasses import dataclass

from jitwarm.faults import Expected, Fault, StubKernel, TensorSpec


class PagedPrefill(StubKernel):
    @dataclass(frozen=True)
    class CompileKey:
        q_stage: int
        paged: bool
        contiguous: bool

    def dispatch(self, *, query, queries, paged):
        return self.CompileKey(2 if queries > 64 else 1, paged, query.is_contiguous())

    def get_warmup_keys(self, contiguous=(True,)):
        return [self.CompileKey(q, True, whole) for q in (1, 2) for whole in contiguous]


prefill = PagedPrefill()


def launched(rows, *, view):
    # A view takes every other head of a buffer that holds queries and gates.
    strides = (256, 1) if view else (128, 1)
    return {"query": TensorSpec("bfloat16", shape=(rows, 128), strides=strides),
            "queries": rows, "paged": True}  # fmt: skip


TRAFFIC = [launched(8, view=False), launched(512, view=False), launched(512, view=True)]

FAULT = Fault(
    "the declared space holds for contiguous queries only",
    kernel=prefill,
    launches=TRAFFIC,
    expected=[Expected("MISS", field="contiguous", warmed="True", seen="False", count=1)],
)
TWIN = Fault(
    "views are declared too",
    kernel=prefill,
    register={"contiguous": (True, False)},
    launches=TRAFFIC,
)
