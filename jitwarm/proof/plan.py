"""The plan as the proof reads it: keys by kernel, what could not be planned, and the kernels that
need none on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from jitwarm.backends import backend_of
from jitwarm.backends.triton.residents import Residents, Respelt
from jitwarm.backends.triton.unwrap import choices_in
from jitwarm.errors import KeyValueError, WrongKindError
from jitwarm.findings import Finding
from jitwarm.judge.explain import explain_spelling
from jitwarm.judge.planned import Planned, entries_of
from jitwarm.plan import Plan, PlanItem, PlanKey
from jitwarm.proof.keyfunction import BACKEND, KeyFunction
from jitwarm.warm import spellings


class ProofPlan(Planned):
    """What was planned, with what a proof asks besides names and choices.

    `ready` has the items by backend key, an autotuner's choices left out, and those of the small
    kernels that a library needs besides, which are known where there are recipes alone. `values`
    are the keys of a `KeyFunction` as they were given.
    """

    def __init__(self, plan: Plan | Iterable[Any], kernel: Any = None) -> None:
        """Take a plan, or its keys or items.

        Anything else in an iterable is a key of `kernel`, if that is a `KeyFunction`. Raises
        `WrongKindError` otherwise.
        """
        self.failures: tuple[tuple[str, Exception], ...] = ()
        self.reasons: dict[str, str] = {}
        self.values: list[Any] = []
        if isinstance(plan, Plan):
            self.failures = plan.failures
            silent = {one.kernel for one in plan.findings if one.kind == "UNDECLARED"}
            self.reasons = {
                row.kernel: row.no_keys_reason
                for row in plan.rows
                if row.no_keys_reason and row.kernel not in silent and not row.keys
            }
            plan = plan.items
        items = [item for one in entries_of(plan) for item in self._items(one, kernel)]
        super().__init__(items)
        self._in_order = items
        self.has_recipes = any(item.recipe is not None for item in items)
        self.ready: dict[str, PlanItem] = {}
        self._by_kernel: dict[str, list[PlanItem]] = {}
        for item in items:
            if item.backend != "opaque" or not choices_in(item.declared or ""):
                self._by_kernel.setdefault(item.kernel, []).append(item)
                self.ready.setdefault(item.backend_key, item)

    @cached_property
    def residents(self) -> Residents:
        """The Triton launches that warm-up makes ready, as far as the plan has their recipes."""
        items: dict[str, list[PlanItem]] = {}
        for item in self._in_order:
            if item.backend == "triton" and item.recipe is not None:
                items.setdefault(item.backend_key, []).append(item)
        return Residents((key, recipe) for key, own in items.items() for recipe in spellings(own))

    def explain_respelt(self, launch: Respelt) -> Finding:
        """Why Triton does not find a launch of a warmed key in memory."""
        warmed = self.residents.spellings[launch.text]
        name = self.name(launch.text)
        finding = explain_spelling(name, launch.text, warmed, launch.spelling)
        return self.placed(finding, launch.text)

    def owning_types(self) -> tuple[type, ...]:
        """The classes of the planned kernels that own their compile."""
        kernels = (
            getattr(i.recipe, "kernel", None) for i in self._in_order if i.backend == "opaque"
        )
        return tuple({type(kernel) for kernel in kernels if kernel is not None})

    def of_kernel(self, kernel: str) -> list[PlanItem]:
        """The keys of one kernel by name, in plan order."""
        return self._by_kernel.get(kernel, [])

    def kernels(self) -> list[str]:
        """The kernels that have keys, and those that need none on purpose."""
        return list(dict.fromkeys((*self._by_kernel, *self.reasons)))

    def path_of(self, kernel: Any) -> str | None:
        """The path in the plan's opaque keys of a kernel object: the second of a class has a
        number.
        """
        for item in self.of_kernel(kernel.kernel_name):
            if item.backend == "opaque" and getattr(item.recipe, "kernel", None) is kernel:
                return item.backend_key.partition("[")[0]
        return None

    def _items(self, one: Any, kernel: Any) -> Iterator[PlanItem]:
        if isinstance(one, PlanKey):
            owners = (one.owner,) if one.owner else ()
            yield PlanItem(one.kernel, one.backend, one.declared, one.backend_key, None, owners)
        elif isinstance(one, PlanItem):
            yield one
            for helper in helpers_of(one.recipe):
                yield PlanItem(one.kernel, one.backend, one.declared, helper, None, one.owners)
        elif isinstance(kernel, KeyFunction):
            self.values.append(one)
            try:
                text = kernel.text(one)
            except KeyValueError:  # told as a finding about the values
                return
            yield PlanItem(kernel.name, BACKEND, text, text, None, ())
        else:
            raise WrongKindError(
                f"a plan holds PlanKey or PlanItem objects, got a {type(one).__qualname__}; pass "
                "the Plan itself, plan.items or plan.keys()"
            )


def helpers_of(recipe: Any) -> tuple[str, ...]:
    """The keys of the small kernels that a recipe's call needs besides its own."""
    backend: Any = backend_of(recipe) if hasattr(type(recipe), "backend") else None
    helpers = getattr(backend, "helpers", None)
    return tuple(helpers(recipe)) if helpers is not None else ()
