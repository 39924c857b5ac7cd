"""What was planned, as far as it takes to explain a miss: keys, kernels, layers, numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from jitwarm.backends.triton.unwrap import choices_in
from jitwarm.errors import WrongKindError
from jitwarm.findings import Finding
from jitwarm.judge import explain
from jitwarm.observe.events import Event
from jitwarm.plan import Plan, PlanItem, PlanKey


class Planned:
    """The keys of a plan, by key and by kernel.

    Made of a `Plan`, of `PlanKey`s, `PlanItem`s or bare backend keys, or of nothing.
    """

    def __init__(self, plan: Plan | Iterable[PlanKey | PlanItem | str] | None = None) -> None:
        """Cheap: keys are taken apart when something is explained, or by `prepay`."""
        entries = plan.keys() if isinstance(plan, Plan) else list(entries_of(plan))
        self.keys = [_stored(entry) for entry in entries]
        # All of them here, those of backend `opaque` too: they explain what has their path.
        self.texts = dict.fromkeys(key.backend_key for key in self.keys)
        self.choices = [text for key in self.keys for text in choices_in(key.declared)]
        # One kernel may be declared twice, under two names.
        self._names = {key.backend_key: key.kernel for key in self.keys if key.kernel}
        self._owners: dict[str, tuple[str, int]] = {}
        for key in self.keys:
            path = path_of(key.backend_key)
            if key.kernel and (key.backend != "opaque" or path not in self._names):
                self._names[path] = key.kernel
            if key.owners > self._owners.get(path, ("", 0))[1]:
                self._owners[path] = key.owner, key.owners
        self._values = {key.backend_key: key.values for key in reversed(self.keys)}

    @classmethod
    def of(cls, plan: Plannable) -> Planned:
        """`plan` as it is, if it is one already."""
        return plan if isinstance(plan, Planned) else cls(plan)

    def __bool__(self) -> bool:
        """Whether anything was planned."""
        return bool(self.keys)

    def prepay(self) -> None:
        """Take all keys apart, so that an explanation costs microseconds."""
        for text in self.texts:
            explain.taken_apart(text)

    def name(self, key: str) -> str:
        """The kernel's name, for a key of the plan or another one of its kernel; else its path."""
        path = path_of(key)
        return self._names.get(key) or self._names.get(path) or path

    def owners(self, key: str) -> tuple[str, ...]:
        """Which layers registered the kernel of a key: the first, and how many more."""
        owner, count = self._owners.get(path_of(key), ("", 0))
        return (owner, f"{count - 1} more")[:count] if owner else ()

    def explain(
        self, seen: str, *, ready: Collection[str] | None = None, event: Event | None = None
    ) -> Finding:
        """Why the key `seen` missed, with its kernel's layers and the launch's place.

        `ready` are the keys that warm-up made ready (all of the plan's without it), `event` is what
        happened first.
        """
        kernel = self.name(seen)
        known = self.texts if ready is None else ready
        if event is not None and event.serving and event.phase == "warm":
            finding = Finding(
                "MISS",
                kernel,
                f"{kernel}: a warm-up came to this key after start-up was over",
                seen=seen,
                advice="warm this key with the others, before serving begins",
            )
        elif seen in self.texts and seen not in known:
            finding = Finding(
                "MISS",
                kernel,
                f"{kernel}: declared, but this key was not made ready",
                seen=seen,
                advice="see why its warm-up failed, or was switched off",
            )
        else:
            finding = explain.explain_miss(
                kernel,
                seen,
                known,
                kind=event.kind if event else "",
                values=event.values if event else None,
                warmed_values=self._values,
            )
        return self.placed(finding, seen, event)

    def explain_choice(self, seen: str, event: Event | None = None) -> Finding:
        """Why an autotuner has to make the choice `seen` (a `tuning_text`) while serving."""
        return self.placed(explain.explain_tuning(self.name(seen), seen, self.choices), seen, event)

    def placed(self, finding: Finding, key: str, event: Event | None = None) -> Finding:
        """`finding` with the layers of the key's kernel, and where the event came from."""
        site = (event.place or event.site) if event else ""
        return msgspec.structs.replace(finding, site=site, owners=self.owners(key))


Plannable = Planned | Plan | Iterable[PlanKey | PlanItem | str] | None


def entries_of(plan: Any) -> Iterable[Any]:
    """What a plan that is given as something else holds; nothing for None.

    Raises `WrongKindError` for what cannot be iterated over, and for one text alone, whose
    letters would be the keys.
    """
    if plan is None:
        return ()
    if isinstance(plan, str) or not isinstance(plan, Iterable):
        raise WrongKindError(
            f"a plan is a Plan, its items or its keys, got a {type(plan).__qualname__}; pass "
            "make_plan(registry)"
        )
    return plan


def path_of(key: str) -> str:
    """The kernel's path in a backend key, and in a raw key of Triton's, which stands behind a
    blank (`hits.by_key`).
    """
    return key.partition("[")[0].rstrip()


def _stored(entry: Any) -> PlanKey:
    if isinstance(entry, PlanKey):
        return entry
    return PlanKey.of(entry) if isinstance(entry, PlanItem) else PlanKey("", "", "", str(entry))
