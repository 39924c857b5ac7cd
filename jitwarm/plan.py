"""Plan: registrations -> distinct requests -> points -> declared keys -> backend keys. A value:
printed, saved, compared.

Nothing compiles here: the backend's own binder says which key each recipe has.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from jitwarm import keys
from jitwarm.backends import backend_of
from jitwarm.declare.enumeration import Enumeration
from jitwarm.findings import Finding
from jitwarm.judge.plans import collision_findings, outside_findings, silent_findings
from jitwarm.registry import JitWarmupRegistry, Request, Warmable, outside_scope


class PlanKey(msgspec.Struct, frozen=True):
    """One declared key and its backend key, without the recipe: what is stored and shown.

    Launches of a key of backend `opaque` cannot be told from others, so coverage leaves it out.
    `owner` is the first of the `owners` layers that registered it, empty where nobody was named.
    `values` are the whole numbers that the declared launch passes where the key has their class.
    """

    kernel: str
    backend: str
    declared: str
    backend_key: str
    owner: str = ""
    owners: int = 0
    values: dict[str, int] = {}

    @classmethod
    def of(cls, item: PlanItem) -> PlanKey:
        """What is stored of a plan item."""
        named = [owner for owner in item.owners if owner]
        return cls(
            item.kernel,
            item.backend,
            item.declared or "",
            item.backend_key,
            named[0] if named else "",
            len(named),
            _run_time_values(item) if item.backend == "triton" else {},
        )


class Funnel(msgspec.Struct, frozen=True):
    """How many of each there are.

    `dedup_ratio` is registrations / distinct registrations, 0 where nothing was registered.
    """

    registrations: int
    distinct_registrations: int
    dedup_ratio: float
    points: int
    keys: int
    backend_keys: int


class KernelRow(msgspec.Struct, frozen=True):
    """The funnel of one kernel."""

    kernel: str
    backend: str
    registrations: int
    distinct_registrations: int
    points: int
    keys: int
    backend_keys: int
    no_keys_reason: str | None = None


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One declared key: the kernel's name, its backend, both canonical keys, the recipe that makes
    it ready, and who asked.

    `declared` is None for keys that nobody declared (recorded ones).
    """

    kernel: str
    backend: str
    declared: str | None
    backend_key: str
    recipe: Any
    owners: tuple[str, ...]

    @property
    def id(self) -> str:
        """The id of the backend key."""
        return keys.key_id(self.backend_key)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that must be ready before traffic, in order of first registration.

    `failures` holds what could not be enumerated or bound, by kernel; warming the rest goes on and
    reports them at the end.
    """

    items: tuple[PlanItem, ...]
    rows: tuple[KernelRow, ...]
    funnel: Funnel
    findings: tuple[Finding, ...]
    failures: tuple[tuple[str, Exception], ...]
    enumeration_s: float

    @property
    def backend_keys(self) -> dict[str, PlanItem]:
        """The first item of each backend key, in plan order: what is compiled."""
        return {key: items[0] for key, items in self.by_backend_key.items()}

    @property
    def by_backend_key(self) -> dict[str, list[PlanItem]]:
        """The items of each backend key, in plan order."""
        found: dict[str, list[PlanItem]] = {}
        for item in self.items:
            found.setdefault(item.backend_key, []).append(item)
        return found

    def keys(self) -> list[PlanKey]:
        """The storable form of the items, in plan order."""
        return [PlanKey.of(item) for item in self.items]


def _run_time_values(item: PlanItem) -> dict[str, int]:
    arguments = dict(getattr(item.recipe, "arguments", ()))
    return {
        name: value
        for name, value in arguments.items()
        if type(value) is int
        and f"[{name}:constexpr=" not in item.backend_key
        and f"; {name}:constexpr=" not in item.backend_key
    }


def make_plan(registry: JitWarmupRegistry) -> Plan:
    """Expand every request of a registry into plan items.

    Raises nothing for one bad kernel: see `Plan.failures`.
    """
    start = time.perf_counter()
    collected: dict[str, _Kernel] = {}
    objects = _Objects()
    failures: list[tuple[str, Exception]] = []
    for request in registry:
        name = request.kernel.kernel_name
        kernel = collected.setdefault(name, _Kernel(name, objects))
        kernel.registrations += request.registrations
        kernel.requests += 1
        try:
            enumeration = request.kernel.enumerate_keys(
                registry.config, request.args, request.kwargs
            )
        except Exception as error:  # one bad kernel must not cost the others their warm-up
            failures.append((name, error))
            continue
        failures += [(name, error) for error in kernel.add(request, enumeration)]
    rows = tuple(kernel.row() for kernel in collected.values())
    items = tuple(item for kernel in collected.values() for item in kernel.items())
    distinct = len(registry)
    funnel = Funnel(
        registrations=registry.registrations,
        distinct_registrations=distinct,
        dedup_ratio=registry.registrations / distinct if distinct else 0.0,
        points=sum(row.points for row in rows),
        keys=len(items),
        backend_keys=len({item.backend_key for item in items}),
    )
    silent = [(kernel.name, what) for kernel in collected.values() for what in kernel.silent]
    triton_keys = [(item.kernel, item.backend_key) for item in items if item.backend == "triton"]
    findings = (
        *outside_findings(outside_scope()),
        *silent_findings(silent),
        *collision_findings(triton_keys),
    )
    return Plan(items, rows, funnel, findings, tuple(failures), time.perf_counter() - start)


@dataclass(slots=True)
class _Entry:
    """One declared key while its askers are counted."""

    backend: str
    backend_key: str
    recipe: Any
    owners: Counter[str] = field(default_factory=Counter)


class _Objects:
    """Numbers kernel objects whose keys would read the same: several of one class, for example."""

    def __init__(self) -> None:
        self._known: dict[str, list[Warmable]] = {}

    def told_apart(self, kernel: Warmable, key: str) -> str:
        """`key`, with `#2` and so on behind the path for the second object of that path."""
        path, bracket, rest = key.partition("[")
        known = self._known.setdefault(path, [])
        if not any(other is kernel for other in known):
            known.append(kernel)
        number = next(i for i, other in enumerate(known, start=1) if other is kernel)
        return key if number == 1 else f"{path}#{number}{bracket}{rest}"


class _Kernel:
    """What is collected of one kernel name while its requests are expanded."""

    def __init__(self, name: str, objects: _Objects) -> None:
        self.name, self.objects = name, objects
        self.registrations = self.requests = self.points = 0
        self.reasons: list[str] = []
        self.silent: list[str] = []
        # Two kernels may share a name; their keys are told apart by the kernel itself.
        self.entries: dict[tuple[Warmable, str], _Entry] = {}

    def add(self, request: Request, enumeration: Enumeration) -> Iterator[Exception]:
        """Take over the keys of one request; yields an error for each that cannot be bound."""
        self.points += enumeration.points
        yield from enumeration.failures
        if enumeration.no_keys_reason:
            self.reasons.append(enumeration.no_keys_reason)
            if enumeration.silent:
                self.silent.append(enumeration.no_keys_reason)
        for declared in enumeration.declared:
            entry = self.entries.get((request.kernel, declared.text))
            if entry is None:
                try:
                    backend = backend_of(declared.recipe)
                    key = backend.key(declared.recipe)
                except Exception as error:  # nor one bad key the others of its kernel
                    error.add_note(f"while planning {declared.text}")
                    yield error
                    continue
                if backend.name == "opaque":
                    key = self.objects.told_apart(request.kernel, key)
                    if hasattr(request.kernel, "opaque_path"):  # its own launches tell it too
                        request.kernel.opaque_path = key.partition("[")[0]
                entry = _Entry(backend.name, key, declared.recipe)
                self.entries[request.kernel, declared.text] = entry
            entry.owners.update(request.owners)

    def items(self) -> Iterable[PlanItem]:
        for (_, text), entry in self.entries.items():
            owners = tuple(sorted(entry.owners))
            yield PlanItem(self.name, entry.backend, text, entry.backend_key, entry.recipe, owners)

    def row(self) -> KernelRow:
        backend_keys = len({entry.backend_key for entry in self.entries.values()})
        backends = dict.fromkeys(entry.backend for entry in self.entries.values())
        reason = (
            "; ".join(dict.fromkeys(self.reasons)) if not self.entries and self.reasons else None
        )
        return KernelRow(
            self.name,
            "+".join(backends) or "-",
            self.registrations,
            self.requests,
            self.points,
            len(self.entries),
            backend_keys,
            reason,
        )
