"""What a warm-up itself gives away: what crashed, what was skipped and is not there, what was kept
under another key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from jitwarm import keys
from jitwarm.amounts import counted
from jitwarm.contract.kernel import OpaqueRecipe
from jitwarm.contract.keytype import key_fields
from jitwarm.findings import Finding
from jitwarm.plan import PlanItem
from jitwarm.warm import WarmReport


def crash_findings(
    planned: Iterable[tuple[str, Exception]],
    report: WarmReport | None = None,
    *,
    enabled: bool = True,
) -> Iterable[Finding]:
    """A WARM-CRASH for each kernel or key of which the warm-up failed: while its keys were
    enumerated (`planned`, the failures of a plan), or while one was made ready (in the report).

    `field` is the declared key, `seen` the kind of error.
    """
    failures: list[tuple[str, str, Exception]] = []
    if enabled:
        failures += [(kernel, _planned(error), error) for kernel, error in planned]
    for outcome in report.failed if report is not None else ():
        assert outcome.error is not None  # a failed outcome always has one
        item = outcome.item
        failures.append((item.kernel, item.declared or item.backend_key, outcome.error))
    for kernel, key, error in failures:
        what = f"the warm-up of {key}" if key else "the declaration of its keys"
        yield Finding(
            "WARM-CRASH",
            kernel,
            f"{kernel}: {what} failed: {type(error).__name__}: {' '.join(str(error).split())}",
            field=key,
            seen=type(error).__name__,
            advice="mend it; the other keys were warmed all the same",
        )


def absent_findings(items: Iterable[PlanItem], made: Collection[str]) -> Iterable[Finding]:
    """A MISS for each kernel of which a finished warm-up left keys of the plan out: `made` are the
    backend keys that it compiled or fetched in this process.

    The words of a warm-up that skips what another cache calls done: `seen` is how many are there.
    """
    by_kernel: dict[str, dict[str, bool]] = {}
    for item in items:
        by_kernel.setdefault(item.kernel, {})[item.backend_key] = item.backend_key in made
    for kernel, present in by_kernel.items():
        count = f"{sum(present.values())} of {counted(len(present), 'key')}"
        if not all(present.values()):
            yield Finding(
                "MISS",
                kernel,
                f"{kernel}: the warm-up ended as done, and {count} are present in this process",
                warmed=count,
                advice="ask the compile cache, not a tuning cache or a marker, whether a key is "
                "ready",
            )


def stored_findings(report: WarmReport) -> Iterable[Finding]:
    """A KEY-INCOMPLETE for each kernel with a compile of its own that kept something, and not under
    the key that it was asked for: a launch of that key will compile again.

    `field` are the fields in which the nearest stored key differs, `warmed` its values, `seen`
    those that were asked for.
    """
    told = set()
    for outcome in report.outcomes:
        recipe = outcome.item.recipe
        if outcome.status != "warmed" or not isinstance(recipe, OpaqueRecipe):
            continue
        key = recipe.key
        stored = list(getattr(recipe.kernel, "_compiled_cache", ()))
        wanted = keys.exact(key)
        if not stored or any(keys.exact(one) == wanted for one in stored):
            continue
        names = min((_differing(one, key) for one in stored), key=len)
        near = next(one for one in stored if _differing(one, key) == names)
        if (recipe.kernel, names) not in told:
            told.add((recipe.kernel, names))
            yield Finding(
                "KEY-INCOMPLETE",
                outcome.item.kernel,
                f"{outcome.item.kernel}: compile({outcome.item.declared}) stored another key, "
                f"{recipe.kernel.key_text(near)}",
                field=", ".join(names),
                warmed=", ".join(_shown(near, name) for name in names),
                seen=", ".join(_shown(key, name) for name in names),
                advice="put what dispatch needs into the key, so that its inputs lead back to it",
            )


def _differing(one: Any, other: Any) -> tuple[str, ...]:
    names = key_fields(other) or ("key",)
    return tuple(name for name in names if _shown(one, name) != _shown(other, name))


def _shown(key: Any, name: str) -> str:
    return keys.canonical(getattr(key, name) if name in key_fields(key) else key)


def _planned(error: Exception) -> str:
    """The key that could not be bound, as the plan noted it."""
    for note in getattr(error, "__notes__", ()):
        if note.startswith("while planning "):
            return note.removeprefix("while planning ")  # type: ignore[no-any-return]
    return ""
