"""Keys that are not the same in every process: the keys of a fault's launches are evaluated
forwards, backwards, and in a second interpreter with another hash seed, each time from the same
beginning. Nothing is compiled.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from jitwarm.contract.kernel import JitKernel
from jitwarm.faults.form import Fault
from jitwarm.faults.launches import points_of
from jitwarm.proof.compare import KeyTable
from jitwarm.proof.envelope import Envelope
from jitwarm.proof.keyfunction import KeyFunction
from jitwarm.proof.reach import reach_of
from jitwarm.proof.space import Space, point_text

# Points of an envelope that are evaluated again; its proof tries more of them in one process.
_MOST = 256


def key_table(fault: Fault, *, backwards: bool = False) -> KeyTable:
    """Evaluate the keys of the fault's launches in this process; the entries are in the order of
    the launches either way.

    Empty for a native kernel, whose keys are Triton's, and for launches that are a function.
    """
    if not has_keys(fault):
        return KeyTable("")
    points = [point for one in points_of(fault) for point in _launches(one)]
    found: dict[int, list[str]] = {}
    order = range(len(points))
    reach = reach_of(fault.kernel)
    for number in reversed(order) if backwards else order:
        try:
            found[number] = list(reach.at(points[number]).keys)
        except Exception:  # a launch that fails is told where it is proved
            found[number] = []
    return KeyTable(
        reach.name, [point_text(point) for point in points], [found[number] for number in order]
    )


def has_keys(fault: Fault) -> bool:
    """Whether the keys of the fault's launches are computed by code of its own."""
    own = isinstance(fault.kernel, KeyFunction | JitKernel)
    return own and fault.launches is not None and not fault.steps


def _launches(one: Any) -> Iterator[Mapping[str, Any]]:
    """A launch that is written down; some launches of an envelope: the first values of each
    parameter, and the last.
    """
    if not isinstance(one, Envelope):
        yield one
        return
    space = Space(one)
    most = max(2, int(_MOST ** (1 / max(len(space.names), 1))))
    values = [space.ends(name, most) for name in space.names]
    for row in itertools.islice((row for table in space.tables(values) for row in table), _MOST):
        launch = None
        with contextlib.suppress(Exception):  # a point that fails is told where it is proved
            launch = one.launch(**space.point(row))
        if launch is not None:
            yield launch
