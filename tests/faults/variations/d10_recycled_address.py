"""A key of addresses: a buffer is freed, another one gets its address and another layout."""

from jitwarm.faults import Expected, Fault, KeyFunction

ADDRESSES = {"weights of layer 0": 0x7F00, "weights of layer 1": 0x7F00}
LAYOUTS = {"weights of layer 0": "row", "weights of layer 1": "column"}


def by_address(*, tensor):
    return ADDRESSES[tensor]


def by_layout(*, tensor):
    return LAYOUTS[tensor]


def program(*, tensor):
    return f"descriptor({LAYOUTS[tensor]}-major)"


LAYERS = [{"tensor": tensor} for tensor in ADDRESSES]

FAULT = Fault(
    "two layouts at one address",
    kernel=KeyFunction("tma_descriptor", by_address, program),
    declared=LAYERS,
    launches=LAYERS,
    expected=[Expected("KEY-INCOMPLETE", kernel="tma_descriptor", field="tensor", count=1)],
)
TWIN = Fault(
    "the layout is the key",
    kernel=KeyFunction("tma_descriptor", by_layout, program),
    declared=LAYERS,
    launches=LAYERS,
)
