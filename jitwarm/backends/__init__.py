"""Compilers behind one small protocol.

Only here (and in the zoo and report) may optional libraries be imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from jitwarm.backends.triton.recipe import TritonRecipe


class Backend(Protocol):
    """What the plan and the warmer ask of a compiler."""

    name: str
    # Whether keys may compile in several threads at once, away from the caller's.
    parallel: bool

    def key(self, recipe: Any) -> str:
        """The canonical backend key of a recipe.

        Compiles nothing. Raises `UsageError` where the recipe cannot be bound.
        """

    def prepare(self, recipes: Iterable[Any]) -> None:
        """Called once, in the calling thread, before any `compile`."""

    def enter_worker(self) -> None:
        """Called first in each pool thread."""

    def compile(self, recipe: Any) -> Any:
        """Make the key's artefact and keep it where launches find it.

        Raises whatever the compiler raises. Launches nothing.
        """

    def load(self, artefact: Any) -> None:
        """Make the artefact ready to launch. Raises if it cannot run on this device."""


_backends: dict[str, Backend] = {}


def backend_of(recipe: object) -> Backend:
    """The backend that understands this recipe."""
    name = "triton" if isinstance(recipe, TritonRecipe) else "opaque"
    backend = _backends.get(name)
    if backend is None:
        backend = _backends[name] = _open(name)
    return backend


def _open(name: str) -> Backend:
    if name == "triton":
        from jitwarm.backends.triton.compiler import TritonBackend

        return TritonBackend()
    from jitwarm.backends.opaque import OpaqueBackend

    return OpaqueBackend()
