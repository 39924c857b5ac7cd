"""The Triton backend of the plan: keys from the binder, compiles through Triton's own warm-up
entry, loads on request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jitwarm.backends.triton.binder import bind_recipe
from jitwarm.backends.triton.hits import remember
from jitwarm.backends.triton.naming import function_at
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.backends.triton.tuning import Configuration, TunedRecipe, compile_configuration
from jitwarm.errors import DeviceError, RunError


def compile_recipe(recipe: TritonRecipe) -> Any:
    """Compile (or read from disk) the binary of a recipe and leave it in Triton's in-process cache;
    returns the CompiledKernel.

    Launches nothing and needs no GPU. Raises what Triton raises, and `RunError` where a user's
    `jit_cache_hook` skipped it.
    """
    fn = function_at(recipe.kernel)
    launch = dict(recipe.arguments) | dict(recipe.options)
    try:
        kernel = fn.run(grid=(1,), warmup=True, **launch)
    except SystemError:
        # Python before 3.11.8 and 3.12.2 now and then breaks an `ast.parse` when several threads
        # parse at once (CPython issue 106905; met once in some twenty runs on 3.11.7). What is
        # broken is that call alone.
        kernel = fn.run(grid=(1,), warmup=True, **launch)
    if kernel is None:
        raise RunError(
            f"{recipe.kernel}: a jit_cache_hook skipped this compile; remove the hook before "
            "warm-up"
        )
    return kernel


class TritonBackend:
    """Keys, compiles and loads of `TritonRecipe`s on the current device."""

    name = "triton"
    parallel = "threads"

    def __init__(self) -> None:
        """Nothing is imported or touched before the first key."""
        self._device = 0

    def key(self, recipe: TritonRecipe) -> str:
        """The canonical key that the recipe's launch has.

        Raises `BindingError` where Triton refuses it.
        """
        fn = function_at(recipe.kernel)
        bound = bind_recipe(fn, recipe)
        remember(fn, current_device(), bound.in_process, bound.text)
        return bound.text

    def prepare(self, recipes: Iterable[TritonRecipe]) -> None:
        """Create each function's cache entry in this thread: threads that touch a fresh one
        together lose entries.
        """
        self._device = current_device()
        for path in sorted({recipe.kernel for recipe in recipes}):
            function_at(path).device_caches[self._device]

    def enter_worker(self) -> None:
        """Give a pool thread the device of the thread that called `prepare`: a new thread starts on
        device 0.
        """
        if self._device:
            import torch

            torch.cuda.set_device(self._device)

    def compile(self, recipe: TritonRecipe) -> Any:
        """See `compile_recipe`, and for one configuration of an autotuner
        `compile_configuration`.
        """
        if isinstance(recipe, TunedRecipe):
            return compile_configuration(compile_recipe, recipe)
        return compile_recipe(recipe)

    def load(self, artefact: Any) -> str:
        """Build the launcher and load the module, so that the first launch pays neither.

        Raises OutOfResources if it cannot. Of a configuration that an autotuner will pass over,
        says so instead.
        """
        if isinstance(artefact, Configuration):
            return artefact.load()
        artefact._init_handles()
        return ""


def current_device() -> int:
    """Triton's device index. Raises `DeviceError` where Triton has no driver to ask."""
    import triton

    try:
        return int(triton.runtime.driver.active.get_current_device())
    except RuntimeError as error:
        raise DeviceError(
            f"Triton has no device here ({error}): call jitwarm.device.activate('cuda'), or "
            "('stub', 'sm90') without a GPU, before warm-up, a proof or a monitor that refuses"
        ) from error
