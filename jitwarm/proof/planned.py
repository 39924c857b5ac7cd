"""The plan as the proof reads it: keys by kernel, and the kernels that need none on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jitwarm.backends import backend_of
from jitwarm.backends.triton.unwrap import choices_in
from jitwarm.errors import WrongKindError
from jitwarm.plan import Plan, PlanItem, PlanKey
from jitwarm.proof.keyfunction import KeyFunction


@dataclass(frozen=True, slots=True)
class PlannedKey:
    """One key that will be ready. `recipe` is None where the plan came without recipes."""

    kernel: str
    backend: str
    declared: str
    key: str
    recipe: Any = None
    owners: tuple[str, ...] = ()


class Planned:
    """What will be ready, whatever form the plan came in."""

    def __init__(self, plan: Plan | Iterable[Any], kernel: Any = None) -> None:
        """Take a plan, or its keys or items.

        The small kernels that a library needs besides are known where there are recipes alone.
        Anything else in an iterable is a key of `kernel`, if that is a `KeyFunction`. Raises
        `WrongKindError` otherwise.
        """
        self.has_recipes = False
        self.failures: tuple[tuple[str, Exception], ...] = ()
        self.reasons: dict[str, str] = {}
        items: Iterable[Any] = plan if not isinstance(plan, Plan) else plan.items
        if isinstance(plan, Plan):
            self.failures = plan.failures
            silent = {one.kernel for one in plan.findings if one.kind == "UNDECLARED"}
            self.reasons = {
                row.kernel: row.no_keys_reason
                for row in plan.rows
                if row.no_keys_reason and row.kernel not in silent and not row.keys
            }
        self._by_kernel: dict[str, list[PlannedKey]] = {}
        self.keys: dict[str, PlannedKey] = {}
        self.choices: dict[str, None] = {}
        for item in items:
            for entry in _entries(item, kernel):
                self._add(entry)

    def of(self, kernel: str) -> list[PlannedKey]:
        """The keys of one kernel by name, in plan order."""
        return self._by_kernel.get(kernel, [])

    def kernels(self) -> list[str]:
        """The kernels that have keys, and those that need none on purpose."""
        return list(dict.fromkeys((*self._by_kernel, *self.reasons)))

    def name_at(self, path: str) -> str | None:
        """The first kernel with a key of this import path."""
        return next((e.kernel for e in self.keys.values() if e.key.partition("[")[0] == path), None)

    def path_of(self, kernel: Any) -> str | None:
        """The path in the plan's opaque keys of a kernel object: the second of a class has a
        number.
        """
        for entry in self.of(kernel.kernel_name):
            if entry.backend == "opaque" and getattr(entry.recipe, "kernel", None) is kernel:
                return entry.key.partition("[")[0]
        return None

    def _add(self, entry: PlannedKey) -> None:
        choices = choices_in(entry.declared) if entry.backend == "opaque" else []
        if choices:  # an autotuner's choice is no binary
            self.choices |= dict.fromkeys(choices)
            return
        self.has_recipes |= entry.recipe is not None
        self._by_kernel.setdefault(entry.kernel, []).append(entry)
        self.keys.setdefault(entry.key, entry)


def _entries(item: Any, kernel: Any) -> Iterable[PlannedKey]:
    if isinstance(item, PlanKey):
        owners = (item.owner,) if item.owner else ()
        yield PlannedKey(item.kernel, item.backend, item.declared, item.backend_key, None, owners)
    elif isinstance(item, PlanItem):
        entry = PlannedKey(
            item.kernel,
            item.backend,
            item.declared or "",
            item.backend_key,
            item.recipe,
            item.owners,
        )
        yield entry
        for helper in helpers_of(item.recipe):
            yield PlannedKey(item.kernel, item.backend, entry.declared, helper, None, item.owners)
    elif isinstance(kernel, KeyFunction):
        for key in kernel.planned([item]):
            yield PlannedKey(key.kernel, key.backend, key.declared, key.backend_key)
    else:
        raise WrongKindError(
            f"a plan holds PlanKey or PlanItem objects, got a {type(item).__qualname__}; pass the "
            "Plan itself, plan.items or plan.keys()"
        )


def helpers_of(recipe: Any) -> tuple[str, ...]:
    """The keys of the small kernels that a recipe's call needs besides its own."""
    backend: Any = backend_of(recipe) if hasattr(type(recipe), "backend") else None
    helpers = getattr(backend, "helpers", None)
    return tuple(helpers(recipe)) if helpers is not None else ()
