"""The CuTe DSL backend of the plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jitwarm.backends.cutedsl import compiling, exporting, library
from jitwarm.backends.cutedsl.loading import load_executor
from jitwarm.backends.cutedsl.recipe import CuTeDSLRecipe
from jitwarm.errors import MissingExtraError, NothingStoredError


@dataclass(frozen=True, slots=True)
class Ready:
    """An executor that its kernel keeps under its key."""

    recipe: CuTeDSLRecipe
    executor: Any


class CuTeDSLBackend:
    """Keys, compiles and loads of `CuTeDSLRecipe`s on the current device.

    A process compiles one key at a time; more compile in forked children, which hand their object
    files over.
    """

    name = "cutedsl"
    parallel = "processes"

    def key(self, recipe: CuTeDSLRecipe) -> str:
        """The canonical key; see `jitwarm.backends.cutedsl.recipe.key_text`."""
        return str(recipe.kernel.backend_key(recipe.key))

    def prepare(self, recipes: Iterable[CuTeDSLRecipe]) -> None:
        """Import what the first compile would import, once for all children.

        Without the library nothing happens here: each key says so when it compiles.
        """
        try:
            library.load("CuTe DSL warm-up")
        except MissingExtraError:
            return
        library.import_what_compiles_need()

    def enter_worker(self) -> None:
        """Nothing that belongs to a thread."""

    def compile(self, recipe: CuTeDSLRecipe) -> Ready:
        """Compile the key in this process and leave the executor with its kernel.

        Raises `NothingStoredError` where the kernel's `compile` stored nothing.
        """
        executor = compiling.ready(recipe.kernel, recipe.key)
        if executor is None:
            raise NothingStoredError(
                f"{recipe.kernel.kernel_name}: compile({recipe.key!r}) stored nothing under this "
                "key; store the executor in self._compiled_cache[key]"
            )
        return Ready(recipe, executor)

    def load(self, artefact: Ready) -> str:
        """See `jitwarm.backends.cutedsl.loading.load_executor`."""
        return load_executor(artefact.recipe.kernel, artefact.recipe.key)

    def worth_a_child(self, recipe: CuTeDSLRecipe) -> bool:
        """Not for a key that is there, nor for one whose options make no tvm-ffi function.

        Nor for a kernel with a `compile` of its own: what else it keeps would stay in the child.
        """
        from jitwarm.contract.cutedsl import CuTeDSLJitKernel

        kernel = recipe.kernel
        if getattr(kernel.compile, "__func__", None) is not CuTeDSLJitKernel.compile:
            return False
        return "--enable-tvm-ffi" in kernel.compile_options and (
            kernel._compiled_cache.get(recipe.key) is None
        )

    def compile_in_child(self, recipe: CuTeDSLRecipe, folder: Path) -> Path:
        """Compile the key in this forked child and write its object file into `folder`."""
        with compiling.exporting():
            artefact = self.compile(recipe)
        return exporting.export(artefact.executor, folder, self.key(recipe))

    def adopt(self, recipe: CuTeDSLRecipe, path: Path) -> Ready:
        """Take over what a child wrote: the executor of this key from now on."""
        cache = recipe.kernel._compiled_cache
        with cache.once(recipe.key):
            executor = cache.get(recipe.key)
            if executor is None:  # a launch may have compiled it meanwhile
                executor = cache[recipe.key] = exporting.read_back(path)
        return Ready(recipe, executor)
