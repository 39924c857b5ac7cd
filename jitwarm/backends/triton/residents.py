"""What warm-up leaves in Triton's in-process caches, told without a compile: a launch is served
from memory or it is not, and its canonical key alone does not say which.

Triton looks a launch up by its specialization and its options as written. A memo leads from both to
the string under which the binary is kept, and compares as Python does. So `num_warps=4` written out
and left out are two look-ups of one binary, and 1 and True one look-up of two.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from jitwarm.backends.miss import Spelling
from jitwarm.backends.triton.binder import bind_recipe
from jitwarm.backends.triton.compiler import current_device
from jitwarm.backends.triton.hits import remember
from jitwarm.backends.triton.naming import function_at
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.backends.triton.stub import NullKernel


class Respelt(NamedTuple):
    """A launch of the warmed key `text` that Triton does not find in memory, because it spells its
    options in another way than warm-up does.
    """

    text: str
    spelling: Spelling


class Asked(NamedTuple):
    """A launch: its own key, that of the warmed binary which serves it (its own where none does),
    and its options where only their spelling keeps it from being served.
    """

    own: str
    text: str
    respelt: Respelt | None = None


class Residents:
    """The warmed launches of one plan, as this process would find them.

    Known are launches of kernels all of whose recipes are one launch each. An autotuner may pass
    over a configuration that is planned, so of its kernel nothing is said.
    """

    def __init__(self, warmed: Iterable[tuple[str, TritonRecipe]]) -> None:
        """`warmed` are keys and recipes in the order in which they are made ready."""
        warmed = list(warmed)
        tuned = {recipe.kernel for _, recipe in warmed if type(recipe) is not TritonRecipe}
        self._memos: dict[str, dict[Any, str]] = {}
        self._texts: dict[tuple[str, str], str] = {}
        self.spellings: dict[str, list[Spelling]] = {}
        for text, recipe in warmed:
            if recipe.kernel not in tuned:
                memo = self._memos.setdefault(recipe.kernel, {})
                bound = bind_recipe(function_at(recipe.kernel), recipe, memo)
                self._texts.setdefault((recipe.kernel, bound.in_process), text)
                self.spellings.setdefault(text, []).append(bound.spelling)

    def ask(self, recipe: TritonRecipe) -> Asked:
        """What the launch of a recipe asks for, and whether it finds it.

        Raises `BindingError` where Triton refuses it.
        """
        # What one launch adds is not there for the next: their order is traffic's own.
        memo = ChainMap({}, self._memos.get(recipe.kernel, {}))
        bound = bind_recipe(function_at(recipe.kernel), recipe, memo)
        served_by = self._texts.get((recipe.kernel, bound.in_process))
        if bound.text not in self.spellings:
            return Asked(bound.text, served_by or bound.text)
        respelt = Respelt(bound.text, bound.spelling) if served_by is None else None
        return Asked(bound.text, bound.text, respelt)

    @contextmanager
    def in_memory(self) -> Iterator[None]:
        """In this block Triton's own caches are as this warm-up leaves them, with kernels that do
        nothing. Behind it they are as before, but for what others compiled.
        """
        device = current_device() if self._memos else 0
        functions = {path: function_at(path) for path in self._memos}
        before = {path: dict(fn.device_caches[device][1]) for path, fn in functions.items()}
        put: list[tuple[Any, str, NullKernel]] = []
        for path, fn in functions.items():
            fn.device_caches[device][1].update(self._memos[path])
        for (path, in_process), text in self._texts.items():
            fn, kernel = functions[path], NullKernel()
            if fn.device_caches[device][0].setdefault(in_process, kernel) is kernel:
                put.append((fn, in_process, kernel))
            remember(fn, device, in_process, text)
        try:
            yield
        finally:
            for path, fn in functions.items():
                memo = fn.device_caches[device][1]
                memo.clear()
                memo.update(before[path])
            for fn, in_process, kernel in put:
                cache = fn.device_caches[device][0]
                if dict.get(cache, in_process) is kernel:
                    del cache[in_process]
