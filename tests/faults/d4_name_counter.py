"""D4: a kernel's key holds how many kernels of its name were built before it."""

from collections import Counter

from jitwarm.faults import Expected, Fault, KeyFunction

_built = Counter()
_names = {}


def counted(*, block):
    if block not in _names:
        _names[block] = f"gemm_{_built['gemm']}"
        _built["gemm"] += 1
    return (_names[block], block)


def named(*, block):
    return (f"gemm_b{block}", block)


INPUTS = [{"block": 64}, {"block": 128}, {"block": 256}]

FAULT = Fault(
    "the key depends on the order of builds",
    kernel=KeyFunction("gemm", counted),
    declared=INPUTS,
    launches=INPUTS,
    expected=[Expected("KEY-UNSTABLE", field="key0", kernel="gemm", count=1)],
)
TWIN = Fault(
    "the name follows from the kernel",
    kernel=KeyFunction("gemm", named),
    declared=INPUTS,
    launches=list(reversed(INPUTS)),
)
