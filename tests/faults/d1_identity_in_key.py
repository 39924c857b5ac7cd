"""D1: a key holds a zero-dimensional tensor, which is hashed by identity and pickled as another."""

import torch

from jitwarm.faults import Expected, Fault, KeyFunction

WINDOW = torch.tensor(128)


def with_tensor(*, heads, causal):
    return (heads, causal, WINDOW)


def with_number(*, heads, causal):
    return (heads, causal, int(WINDOW))


INPUTS = [{"heads": 16, "causal": True}]

FAULT = Fault(
    "a field of the key is no value",
    kernel=KeyFunction("Attention", with_tensor),
    declared=INPUTS,
    launches=INPUTS,
    expected=[Expected("KEY-UNSTABLE", field="key2", kernel="Attention", count=1)],
)
TWIN = Fault(
    "the number in the tensor is the field",
    kernel=KeyFunction("Attention", with_number),
    declared=INPUTS,
    launches=INPUTS,
)
