"""The flash-attn-4 backend of the plan: keys by a probe, compiles in fake mode, loads by one
scratch launch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jitwarm import device
from jitwarm.backends.fa4 import calls, children, library
from jitwarm.backends.fa4.hooks import watching
from jitwarm.backends.fa4.pending import Asked
from jitwarm.backends.fa4.probes import asked_by, texts_of
from jitwarm.backends.fa4.recipe import Callback, FA4Recipe
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import MissingExtraError


@dataclass(frozen=True, slots=True)
class FA4Artefact:
    """A recipe whose kernels are in the library's caches."""

    recipe: FA4Recipe


class FA4Backend:
    """Keys, compiles and loads of `FA4Recipe`s on the current device.

    A process compiles one key at a time; more compile in forked children. A kernel that several
    calls need is compiled by the first child that gets to it.
    """

    name = "fa4"
    parallel = "processes"

    def __init__(self) -> None:
        """Nothing is imported before the first key."""
        self._work: dict[str, children.Work] = {}

    def key(self, recipe: FA4Recipe) -> str:
        """The library's own key of the call's main kernel.

        Compiles nothing. Raises `BindingError` where the library refuses the call.
        """
        return texts_of(recipe)[0]

    def helpers(self, recipe: FA4Recipe) -> tuple[str, ...]:
        """The keys of the small kernels that the call needs besides, sorted. Raises as `key`."""
        return texts_of(recipe)[1:]

    def prepare(self, recipes: Iterable[FA4Recipe]) -> None:
        """Import the library, and note what each recipe has to compile.

        Where the library is not installed, or refuses a call, its key says so when it compiles.
        """
        self._work = {}
        with contextlib.suppress(MissingExtraError):
            library.interface("warm-up")
            self._work = children.work_of(recipes)

    def enter_worker(self) -> None:
        """Keys compile in the calling thread."""

    def compile(self, recipe: FA4Recipe) -> FA4Artefact:
        """Compile the call's kernels, helpers included, that are not there yet."""
        calls.compile_call(recipe)
        return FA4Artefact(recipe)

    def load(self, artefact: FA4Artefact) -> str:
        """Load the modules, by one launch on scratch tensors."""
        current = device.current()
        if current.kind == "cuda":
            arguments = {name: _scratch(value) for name, value in artefact.recipe.arguments}
            interface = library.interface("attention")
            with watching(interface):
                calls.function_at(artefact.recipe.entry)(**arguments)
            current.synchronize()
        return ""

    def worth_a_child(self, recipe: FA4Recipe) -> bool:
        """Not for a call whose kernels are all there, nor for one that the library has refused:
        the error of that is for this process to raise.
        """
        return recipe.canonical() in self._work and bool(_missing(recipe))

    def compile_in_child(self, recipe: FA4Recipe, folder: Path) -> Path:
        """Compile the recipe's kernels in this forked child; returns a file that lists the object
        files.
        """
        return children.compile_work(self._work[recipe.canonical()], folder)

    def adopt(self, recipe: FA4Recipe, path: Path) -> FA4Artefact:
        """Put what a child compiled into the library's caches.

        Raises `KeyError` if a launch of this call would still compile, whatever the child said.
        """
        children.take_over(self._work[recipe.canonical()], path)
        if missing := _missing(recipe):
            raise KeyError(missing[0])
        return FA4Artefact(recipe)


def _missing(recipe: FA4Recipe) -> list[Asked]:
    """The kernels of a call, helpers included, that a launch would have to compile."""
    with watching(library.interface("attention")) as watched:
        return [entry for entry in asked_by(recipe) if not watched[entry[0]].in_memory(entry[1])]


def _scratch(value: Any) -> Any:
    if isinstance(value, TensorSpec):
        return calls.scratch_tensor(value)
    if isinstance(value, Callback):
        return value.resolve()
    return [_scratch(item) for item in value] if isinstance(value, tuple) else value
