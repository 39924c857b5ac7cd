"""E4: eight ranks compile the same twenty keys each."""

from jitwarm.faults import Expected, Fault, event

KEYS = [f"grouped_gemm[group={group}]" for group in range(20)]


def rank_compiles(rank, keys):
    return [event("compile", key, phase="warm", rank=rank) for key in keys]


FAULT = Fault(
    "160 compiles of 20 keys",
    events=[one for rank in range(8) for one in rank_compiles(rank, KEYS)],
    expected=[Expected("DUP", kernel="grouped_gemm")],
)
TWIN = Fault(
    "each key is compiled by one rank, and fetched by the others",
    events=[
        event("compile" if number % 8 == rank else "disk_hit", key, phase="warm", rank=rank)
        for rank in range(8)
        for number, key in enumerate(KEYS)
    ],
)
