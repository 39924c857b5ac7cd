"""Kernels whose compile is their own business: the key that people read is the only key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jitwarm import keys


class OpaqueBackend:
    """Serves recipes that carry a contract kernel and one of its keys
    (`jitwarm.contract.kernel.OpaqueRecipe`).
    """

    name = "opaque"
    parallel = ""

    def key(self, recipe: Any) -> str:
        """The kernel's class and its key; the plan numbers several objects of one class."""
        kind = type(recipe.kernel)
        return f"{kind.__module__}.{kind.__qualname__}[{keys.canonical(recipe.key)}]"

    def prepare(self, recipes: Iterable[Any]) -> None:
        """Nothing to share between keys."""

    def enter_worker(self) -> None:
        """Nothing that belongs to a thread."""

    def compile(self, recipe: Any) -> Any:
        """Whatever the kernel's own `compile` does."""
        return recipe.kernel.compile(recipe.key)

    def load(self, artefact: Any) -> str:
        """Such a kernel offers no load of its own; its compile is taken at its word."""
        return ""
