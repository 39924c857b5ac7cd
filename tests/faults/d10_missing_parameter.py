"""D10: a key that is kept by hand lacks a parameter of the code that is generated."""

from jitwarm.faults import Expected, Fault, KeyFunction


def source(*, head_dim, gate):
    return f"kernel<{head_dim}> {{ {'y *= silu(g);' if gate else ''} }}"


def short_key(*, head_dim, gate):
    return (head_dim,)


def whole_key(*, head_dim, gate):
    return (head_dim, gate)


INPUTS = [{"head_dim": 128, "gate": False}, {"head_dim": 128, "gate": True}]

FAULT = Fault(
    "two programs under one key: the second gets the first one's",
    kernel=KeyFunction("GatedDelta", short_key, source),
    declared=INPUTS,
    launches=INPUTS,
    expected=[Expected("KEY-INCOMPLETE", field="gate", kernel="GatedDelta", count=1)],
)
TWIN = Fault(
    "the key holds everything that the code depends on",
    kernel=KeyFunction("GatedDelta", whole_key, source),
    declared=INPUTS,
    launches=INPUTS,
)
