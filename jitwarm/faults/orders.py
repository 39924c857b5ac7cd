"""Keys that are not the same in every process: the keys of a fault's launches, and those that are
declared, are evaluated forwards, backwards, and in a second interpreter with another hash seed,
each time from the same beginning. Nothing is compiled.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from jitwarm.backends.triton.unwrap import is_wrapped
from jitwarm.contract.kernel import JitKernel
from jitwarm.faults.examine import plan_of, subject_of
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
    """Evaluate the keys of the fault in this process; the entries are in the order of the launches
    either way, and the last is of all keys that are declared.

    Launches of a native kernel, whose keys are Triton's, and those that are a function are left
    out.
    """
    name, points, keys = "", [], []
    if _computes_keys(fault):
        reach = reach_of(fault.kernel)
        name = reach.name
        given = [point for one in points_of(fault) for point in _launches(one)]
        found: dict[int, list[str]] = {}
        order = range(len(given))
        for number in reversed(order) if backwards else order:
            try:
                found[number] = list(reach.at(given[number]).keys)
            except Exception:  # a launch that fails is told where it is proved
                found[number] = []
        points, keys = [point_text(point) for point in given], [found[number] for number in order]
    if _declares_keys(fault):
        planned = []
        with contextlib.suppress(Exception):  # told where it is planned
            subject = subject_of(fault)
            name = subject.kernel_name
            planned = sorted(plan_of(fault, subject).backend_keys)
        points, keys = [*points, ""], [*keys, planned]
    return KeyTable(name, points, keys)


def has_keys(fault: Fault) -> bool:
    """Whether keys of the fault are computed by code of its own."""
    return _computes_keys(fault) or _declares_keys(fault)


def _computes_keys(fault: Fault) -> bool:
    own = isinstance(fault.kernel, KeyFunction | JitKernel)
    return own and fault.launches is not None and not fault.steps


def _declares_keys(fault: Fault) -> bool:
    if isinstance(fault.kernel, KeyFunction) or is_wrapped(fault.kernel):
        return False
    return fault.declared is not None or hasattr(fault.kernel, "enumerate_keys")


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
