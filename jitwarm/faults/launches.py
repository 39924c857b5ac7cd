"""The launches of a fault as the proof takes them: mappings and envelopes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jitwarm.declare.launch import LaunchCase
from jitwarm.errors import FaultError
from jitwarm.faults.form import Fault
from jitwarm.findings import Finding
from jitwarm.proof.envelope import Envelope


def points_of(fault: Fault) -> list[Any]:
    """Mappings and `Envelope`s; domains in a `launch(...)` stand for each of their values.

    Raises `FaultError` for anything else.
    """
    found: list[Any] = []
    for one in several(fault.launches):
        found += [one] if isinstance(one, Envelope) else cases_of(fault, one)
    return found


def cases_of(fault: Fault, given: Any) -> list[Mapping[str, Any]]:
    """The launches that one `launch(...)` or mapping stands for."""
    if isinstance(given, LaunchCase):
        return list(given.points(fault.title))
    if not isinstance(given, Mapping):
        raise FaultError(
            f"Fault({fault.title!r}): launches are launch(...)es, mappings, Envelopes or a "
            f"function, got a {type(given).__name__}"
        )
    return [given]


def several(given: Any) -> Iterable[Any]:
    """One or several of them."""
    if given is None:
        return ()
    return (given,) if isinstance(given, LaunchCase | Mapping | Envelope) else given


def without_samples(fault: Fault, findings: Iterable[Finding]) -> list[Finding]:
    """The findings of a proof; what was not reached counts only if the launches are all of those
    that traffic makes, and not some of them.
    """
    envelopes = any(isinstance(one, Envelope) for one in several(fault.launches))
    complete = fault.complete or envelopes
    return [one for one in findings if one.kind != "UNREACHED" or complete]
