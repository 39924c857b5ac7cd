"""Compilers behind one small protocol.

Only here (and in the zoo and report) may optional libraries be imported. A recipe is what one
compile needs: picklable values of a class whose attribute `backend` names the backend that
understands it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, cast

from jitwarm.errors import UsageError


class Backend(Protocol):
    """What the plan and the warmer ask of a compiler."""

    name: str
    # How several keys may compile at once: in "threads" of this process, in "processes" (see
    # `ProcessBackend`), or, where it is empty, not at all.
    parallel: str

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

    def load(self, artefact: Any) -> str:
        """Make the artefact ready to launch. Raises if it cannot run on this device.

        Returns a doubt in words where it cannot be said that the first launch finds everything
        loaded, and an empty text where it can.
        """


class ProcessBackend(Backend, Protocol):
    """What a backend with `parallel == "processes"` offers besides: one compile at a time is all
    that a process of this compiler can do, so further keys compile in forked children.

    It may also have `worth_a_child(recipe) -> bool`: False for a key that this process has compiled
    already, and for one whose binary no child could hand over.
    """

    def compile_in_child(self, recipe: Any, folder: Path) -> Path:
        """In a forked child: compile, and export the binary to a new file in `folder`.

        The file has its name only when it is complete. Whatever this raises, the parent compiles
        the key itself.
        """

    def adopt(self, recipe: Any, path: Path) -> Any:
        """In the parent: load what a child wrote and keep it where launches find it; returns the
        artefact.
        """


# By name: where each backend is. Opened at the first recipe of its kind.
_HOMES = {
    "triton": "jitwarm.backends.triton.compiler:TritonBackend",
    "cutedsl": "jitwarm.backends.cutedsl.backend:CuTeDSLBackend",
    "fa4": "jitwarm.backends.fa4.backend:FA4Backend",
    "opaque": "jitwarm.backends.opaque:OpaqueBackend",
}
_backends: dict[str, Backend] = {}


def backend_of(recipe: object) -> Backend:
    """The backend that understands this recipe, by its class attribute `backend`.

    A recipe without one is opaque. Raises `UsageError` for a backend that is not there.
    """
    name = getattr(type(recipe), "backend", "opaque")
    if name not in _HOMES:
        raise UsageError(
            f"{type(recipe).__qualname__}: no backend is called {name!r}; its attribute `backend` "
            f"may be {', '.join(_HOMES)}"
        )
    backend = _backends.get(name)
    if backend is None:
        module, _, kind = _HOMES[name].partition(":")
        backend = cast("Backend", getattr(importlib.import_module(module), kind)())
        _backends[name] = backend
    return backend
