"""Keys with what another process has otherwise: an order of a set, a folder, a process's number."""

import os
from pathlib import Path

from jitwarm.faults import Expected, Fault, KeyFunction

FLAGS = {"causal", "paged", "windowed", "quantised", "split"}
INPUTS = [{"heads": 16}, {"heads": 32}]


def of_key(name, value):
    return {
        "kernel": KeyFunction(name, lambda heads: (heads, value())),
        "declared": INPUTS,
        "launches": INPUTS,
    }


SET = Fault(
    "flags in the order of a set",
    expected=[Expected("KEY-UNSTABLE", kernel="flags", field="key1", count=1)],
    **of_key("flags", lambda: " ".join(FLAGS)),
)
FOLDER = Fault(
    "where it is installed",
    expected=[Expected("KEY-UNSTABLE", kernel="folder", field="key1", count=1)],
    **of_key("folder", lambda: str(Path(__file__).parent / "kernel.cu")),
)
NUMBER = Fault(
    "which process it was",
    expected=[Expected("KEY-UNSTABLE", kernel="number", field="key1", count=1)],
    **of_key("number", os.getpid),
)
TWIN = Fault(
    "sorted flags, and a file by its name",
    **of_key("named", lambda: (*sorted(FLAGS), Path(__file__).name)),
)
