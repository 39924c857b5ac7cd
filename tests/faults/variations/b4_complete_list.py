"""A list of launches that is all there are: what it does not reach is waste, and what it reaches
and nobody declared is a miss.
"""

from typing import NamedTuple

from jitwarm.faults import Expected, Fault, KeyFunction


class Key(NamedTuple):
    heads: int
    split: int


def key(*, heads, split):
    return Key(heads, split)


kernel = KeyFunction("flash_decode", key)
LAUNCHES = [{"heads": 64, "split": 1}, {"heads": 64, "split": 8}, {"heads": 128, "split": 8}]

FAULT = Fault(
    "one key too many, one too few",
    kernel=kernel,
    declared=[Key(64, 1), Key(64, 8), Key(32, 8)],
    launches=LAUNCHES,
    complete=True,
    expected=[
        Expected("UNREACHED", field="heads", count=1),
        Expected("MISS", field="heads", seen="128", count=1),
    ],
)
TWIN = Fault(
    "a sample of the launches need not reach everything",
    kernel=kernel,
    declared=[Key(64, 1), Key(64, 8), Key(32, 8), Key(128, 8)],
    launches=LAUNCHES,
)
TWIN_COMPLETE = Fault(
    "each key is reached",
    kernel=kernel,
    declared=[Key(64, 1), Key(64, 8), Key(128, 8)],
    launches=LAUNCHES,
    complete=True,
)
