"""Kernels whose compile is their own business: the key that people read is the only key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jitwarm import keys
from jitwarm.contract.keytype import key_fields


class OpaqueBackend:
    """Serves recipes that carry a contract kernel and one of its keys
    (`jitwarm.contract.kernel.OpaqueRecipe`).
    """

    name = "opaque"
    parallel = ""

    def key(self, recipe: Any) -> str:
        """The kernel's class and its key, the fields by name, as in `module.Class[block=16; split=
        True]`; the plan numbers several objects of one class.
        """
        kind, key = type(recipe.kernel), recipe.key
        if hasattr(key, "canonical"):  # it knows its own text
            return f"{kind.__module__}.{kind.__qualname__}[{key.canonical()}]"
        fields = (f"{name}={keys.canonical(getattr(key, name))}" for name in key_fields(key))
        inner = "; ".join(fields) or keys.canonical(key)
        return f"{kind.__module__}.{kind.__qualname__}[{inner}]"

    def prepare(self, recipes: Iterable[Any]) -> None:
        """Nothing to share between keys."""

    def enter_worker(self) -> None:
        """Nothing that belongs to a thread."""

    def compile(self, recipe: Any) -> Any:
        """Whatever the kernel's own `compile` does."""
        kernel = recipe.kernel
        compile_ = getattr(kernel, "_compile_ahead", kernel.compile)
        return compile_(recipe.key)

    def load(self, artefact: Any) -> str:
        """Such a kernel offers no load of its own; its compile is taken at its word."""
        return ""
