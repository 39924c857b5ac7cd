"""Keys that are not the same in every process: they hold something that is no value, or depend on
what was built before, on the hash seed, on an address.

The keys of a fault's launches are evaluated forwards, backwards, and in a second interpreter with
another hash seed, each time from the same beginning. Nothing is compiled.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from jitwarm import keys
from jitwarm.backends.keyfields import fields_of
from jitwarm.contract.kernel import JitKernel
from jitwarm.contract.keytype import key_fields
from jitwarm.errors import KeyValueError
from jitwarm.faults.form import Fault
from jitwarm.faults.launches import points_of
from jitwarm.findings import Finding
from jitwarm.proof.envelope import Envelope, Values
from jitwarm.proof.keyfunction import KeyFunction
from jitwarm.proof.planned import Planned
from jitwarm.proof.reach import reach_of

# Points of an envelope that are evaluated again; its proof tries more of them in one process.
_MOST = 256
_ADVICE = "compute the key from the arguments of the launch alone, and of values"


class KeyTable(msgspec.Struct, frozen=True):
    """The keys of a fault's launches in one process: fields by name, one entry a launch; `points`
    are the launches as text.
    """

    kernel: str
    points: list[str] = []
    keys: list[dict[str, str]] = []


def key_table(fault: Fault, *, backwards: bool = False) -> KeyTable:
    """Evaluate the keys of the fault's launches in this process; the entries are in the order of
    the launches either way.

    Empty for a native kernel, whose keys are Triton's, and for launches that are a function.
    """
    if not has_keys(fault):
        return KeyTable("")
    kernel, points = fault.kernel, some_points(fault)
    found: dict[int, dict[str, str]] = {}
    order = range(len(points))
    for number in reversed(order) if backwards else order:
        try:
            found[number] = _fields(kernel, points[number])
        except Exception:  # a launch that fails is told where it is proved
            found[number] = {}
    return KeyTable(
        kernel.kernel_name, [_text(point) for point in points], [found[number] for number in order]
    )


def has_keys(fault: Fault) -> bool:
    """Whether the keys of the fault's launches are computed by code of its own."""
    own = isinstance(fault.kernel, KeyFunction | JitKernel)
    return own and fault.launches is not None and not fault.steps


def order_findings(one: KeyTable, other: KeyTable, how: str) -> Iterable[Finding]:
    """A KEY-UNSTABLE for the first launch whose key differs between two tables; `how` says what was
    done differently.
    """
    if one.points != other.points:  # nothing of a fault that could not be run, for example
        return
    for point, first, second in zip(one.points, one.keys, other.keys, strict=True):
        if first == second:
            continue
        names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
        yield Finding(
            "KEY-UNSTABLE",
            one.kernel,
            f"{one.kernel}: {how}, the key of one launch has another "
            f"{' and '.join(f'`{name}`' for name in names)}",
            field=", ".join(names),
            warmed=", ".join(first.get(name, "absent") for name in names),
            seen=", ".join(second.get(name, "absent") for name in names),
            smallest=point,
            advice=_ADVICE,
        )
        return


def identity_findings(kernel: Any, found: Iterable[Any]) -> Iterable[Finding]:
    """A KEY-UNSTABLE for each field of the keys `found` that is compared by identity."""
    told = set()
    for key in found:
        for name, value in _named(kernel, key).items():
            try:
                keys.canonical(value)
            except KeyValueError as error:
                if name not in told:
                    told.add(name)
                    yield _no_value(kernel.kernel_name, name, type(value), error)


def equal_findings(kernel: Any, found: Iterable[Any]) -> Iterable[Finding]:
    """A KEY-UNSTABLE for keys that Python takes for one although their values are not the same: 1,
    True and 1.0. A cache that is a dictionary serves whichever was built first.
    """
    first: dict[Any, Any] = {}
    told = set()
    for key in found:
        try:
            other = first.setdefault(key, key)
        except TypeError:  # it cannot be hashed, so no dictionary has it
            continue
        named, others = _named(kernel, key), _named(kernel, other)
        names = [n for n in named if shown(named[n]) != shown(others.get(n))]
        if names and tuple(names) not in told:
            told.add(tuple(names))
            warmed = ", ".join(shown(others.get(name)) for name in names)
            seen = ", ".join(shown(named[name]) for name in names)
            yield Finding(
                "KEY-UNSTABLE",
                kernel.kernel_name,
                f"{kernel.kernel_name}: a dictionary takes {warmed} and {seen} for one key, and "
                "serves whichever was built first",
                field=", ".join(names),
                warmed=warmed,
                seen=seen,
                advice="use one type for this field",
            )


def failure_findings(kernel: str, error: Exception) -> Iterable[Finding]:
    """The same for a declaration that was refused for such a value."""
    named = re.search(r"(?:argument|field|option) '(\w+)'", str(error))
    yield _no_value(kernel, named[1] if named else "", None, error)


def _no_value(kernel: str, name: str, kind: type | None, error: Exception) -> Finding:
    return Finding(
        "KEY-UNSTABLE",
        kernel,
        f"{kernel}: {f'field `{name}` of its key' if name else 'its key'} is not a value: {error}",
        field=name,
        seen=f"{kind.__module__}.{kind.__qualname__}" if kind else "",
        advice="put a number, a string, a dtype or a tuple of these into the key",
    )


def some_points(fault: Fault) -> list[Mapping[str, Any]]:
    """The launches that are written down, and of an envelope the first and the last of each
    parameter.
    """
    points: list[Mapping[str, Any]] = []
    for one in points_of(fault):
        points += _of_envelope(one) if isinstance(one, Envelope) else [one]
    return points


def _of_envelope(envelope: Envelope) -> list[Mapping[str, Any]]:
    """Some launches of an envelope: the first values of each parameter, and the last."""
    axes: list[Sequence[Any]] = []
    most = max(2, int(_MOST ** (1 / max(len(envelope.parameters), 1))))
    for domain in envelope.parameters.values():
        if isinstance(domain, Values):
            axes.append(domain.values[:most])
        else:
            ends = [*range(domain.low, min(domain.low + most - 1, domain.high)), domain.high]
            axes.append(ends)
    points = (
        dict(zip(envelope.parameters, values, strict=True)) for values in itertools.product(*axes)
    )
    launches = (_launch(envelope, point) for point in itertools.islice(points, _MOST))
    return [one for one in launches if one is not None]


def _launch(envelope: Envelope, point: Mapping[str, Any]) -> Mapping[str, Any] | None:
    try:
        inside = envelope.where is None or bool(envelope.where(**point))
        return envelope.launch(**point) if inside else None
    except Exception:  # a point that fails is told where it is proved
        return None


def _fields(kernel: Any, point: Mapping[str, Any]) -> dict[str, str]:
    if isinstance(kernel, KeyFunction):
        named = kernel.fields(kernel.key(**point))
        return {name: shown(value) for name, value in named.items()}
    reached = reach_of(kernel, Planned(())).at(point)
    return {} if reached is None else fields_of(" ".join(reached.keys)).together()


def _named(kernel: Any, key: Any) -> dict[str, Any]:
    if isinstance(kernel, KeyFunction):
        return kernel.fields(key)
    return {name: getattr(key, name) for name in key_fields(key)} or {"key": key}


def shown(value: Any) -> str:
    """Its canonical text. Of what has none, the type: that it has none is told once already."""
    try:
        return keys.canonical(value)
    except KeyValueError:
        return f"<{type(value).__qualname__}>"


def _text(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in point.items())
