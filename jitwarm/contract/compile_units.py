"""Opaque CuTe DSL compiles: a name, a key and a function that compiles it.

For kernels without a contract class. A component registers itself as a provider; start-up asks all
providers that are still alive for their units and compiles each key once.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from jitwarm import keys
from jitwarm.backends.cutedsl import library
from jitwarm.declare.enumeration import taken
from jitwarm.errors import RegistrationError, WrongKindError
from jitwarm.observe import phases


@dataclass(frozen=True)
class CuTeDSLCompileUnit:
    """One compile: `compile()` makes what launches of `key` need, and keeps it where they look.

    `key` is a value that says everything which decides the binary, the kernel included: of all
    units with the same key (by type and value) only the first one's `compile` runs, so it has to
    keep the result where every launch of the key looks, not in its own provider alone. `name` is
    what reports show.
    """

    name: str
    key: Hashable
    compile: Callable[[], Any]


class Provider(Protocol):
    """A component with compile units, an attention layer for example."""

    def get_cutedsl_warmup_compile_units(self) -> Iterable[CuTeDSLCompileUnit]:
        """Its units; asked at start-up, when everything is built."""


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """What became of one key: `error` is None if it is compiled. `names` are those of all units
    that had it.
    """

    names: tuple[str, ...]
    seconds: float
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class UnitsReport:
    """The compiled units in order of registration, and what went wrong before any compile.

    `skipped` is why none was tried, in one line, or empty; then, and where the library is broken,
    `outcomes` is empty, and `found` still counts the distinct keys.
    """

    found: int = 0
    outcomes: tuple[UnitOutcome, ...] = ()
    failures: tuple[Exception, ...] = ()
    skipped: str = ""

    @property
    def errors(self) -> list[Exception]:
        """Everything that failed."""
        failed = [one.error for one in self.outcomes if one.error is not None]
        return [*self.failures, *failed]


_providers: list[weakref.ref[Any]] = []


def register_cutedsl_warmup_provider(provider: Provider) -> None:
    """Have start-up compile the units of `provider`, as long as it is alive: it is held weakly.

    Raises `RegistrationError` for an object without units and for one that cannot be held weakly.
    """
    kind = type(provider).__qualname__
    if not callable(getattr(provider, "get_cutedsl_warmup_compile_units", None)):
        raise RegistrationError(
            f"{kind} has no get_cutedsl_warmup_compile_units(), so there is nothing to warm: give "
            "it that method"
        )
    if any(known() is provider for known in _providers):
        return
    try:
        _providers.append(weakref.ref(provider, _providers.remove))
    except TypeError as error:
        raise RegistrationError(
            f"{kind} cannot be held weakly: add '__weakref__' to its __slots__"
        ) from error


def compile_registered_units() -> UnitsReport:
    """Compile the units of all registered providers; each key once, all of them tried.

    Units run one after another, under `torch.inference_mode`, in phase `warm`, and hold the
    compiler's lock.
    """
    failures: list[Exception] = []
    found: dict[Hashable, _Found] = {}
    for unit in _units(failures):
        try:
            token = keys.exact(unit.key)
        except Exception as error:  # one bad unit must not cost the others
            error.add_note(f"while reading the key of the compile unit {unit.name}")
            failures.append(error)
            continue
        found.setdefault(token, _Found(unit)).names[unit.name] = None
    if not found:
        return UnitsReport(failures=tuple(failures))
    try:
        reason = library.why_not_here()
    except Exception as error:  # an installation that is broken, not missing
        error.add_note(f"while asking whether {len(found)} CuTe DSL compile units can compile here")
        return UnitsReport(len(found), failures=(*failures, error))
    if reason:
        return UnitsReport(len(found), failures=tuple(failures), skipped=reason)
    return UnitsReport(len(found), tuple(_compiled(found.values())), tuple(failures))


@dataclass(slots=True)
class _Found:
    """The first unit of a key, and the names of all."""

    unit: CuTeDSLCompileUnit
    names: dict[str, None] = field(default_factory=dict)


def _units(failures: list[Exception]) -> Iterator[CuTeDSLCompileUnit]:
    alive = [known() for known in _providers]
    for provider in alive:
        if provider is None:
            continue
        kind = type(provider).__qualname__
        units, errors = taken(_asked(provider))
        for error in errors:
            error.add_note(f"while asking {kind} for its compile units")
        failures += errors
        for unit in units:
            wrong = _wrong_with(unit)
            if wrong:
                failures.append(
                    WrongKindError(
                        f"{kind}.get_cutedsl_warmup_compile_units() gave {wrong}; it has to give "
                        "CuTeDSLCompileUnit(name, key, compile) objects, with a text as name and a "
                        "function of no arguments as compile"
                    )
                )
            else:
                yield unit


def _asked(provider: Provider) -> Iterator[Any]:
    yield from provider.get_cutedsl_warmup_compile_units()


def _wrong_with(unit: Any) -> str:
    """Why this is no compile unit, in words; empty where it is one."""
    if not isinstance(unit, CuTeDSLCompileUnit):
        return f"an object of type {type(unit).__qualname__}"
    name: object = unit.name
    if not isinstance(name, str):
        return f"a unit whose name is of type {type(name).__qualname__}"
    function: object = unit.compile
    if not callable(function):
        return f"the unit {name} whose compile is of type {type(function).__qualname__}"
    return ""


def _compiled(found: Iterable[_Found]) -> Iterator[UnitOutcome]:
    import torch

    arch = library.architecture()
    with phases.phase("warm"), torch.inference_mode():
        for one in found:
            start, failure = time.perf_counter(), None
            try:
                with library.compiling(arch):
                    one.unit.compile()
            except Exception as error:  # all units are tried
                error.add_note(f"while compiling the unit {one.unit.name}")
                failure = error
            yield UnitOutcome(tuple(one.names), time.perf_counter() - start, failure)
