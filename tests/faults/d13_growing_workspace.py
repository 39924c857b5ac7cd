"""D13: a key holds the rows of a workspace that grows: what a batch needs depends on the past."""

from jitwarm.faults import Expected, Fault, KeyFunction

_workspace = {"rows": 0}


def with_workspace(*, rows):
    _workspace["rows"] = max(_workspace["rows"], rows)
    return (128, _workspace["rows"])


def with_bucket(*, rows):
    return (128, 64 if rows <= 64 else 4096)


SMALL, LARGE = {"rows": 8}, {"rows": 4096}

FAULT = Fault(
    "small batches before a large one have a key that later ones have not",
    kernel=KeyFunction("SparseMLA", with_workspace),
    declared=[SMALL, LARGE],
    launches=[SMALL, LARGE],
    expected=[Expected("KEY-UNSTABLE", field="key1", kernel="SparseMLA", count=1)],
)
TWIN = Fault(
    "the key holds the bucket of this batch",
    kernel=KeyFunction("SparseMLA", with_bucket),
    declared=[SMALL, LARGE],
    launches=[LARGE, SMALL],
)
