"""Compiles in forked children: what a child gets, and what it hands back.

The parent calls the library once for each recipe and keeps the arguments of its compiles; a child
runs the compiler on them and writes object files. So a child needs no GPU and makes no tensors:
CUDA cannot be used in the fork of a process that uses it. Where the library has a cache on disk, a
child stores there, and the parent reads it from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jitwarm import keys
from jitwarm.backends import sinks
from jitwarm.backends.cutedsl import library as cutedsl
from jitwarm.backends.fa4 import calls, library
from jitwarm.backends.fa4.caches import Asked, Compile
from jitwarm.backends.fa4.hooks import watching
from jitwarm.backends.fa4.keytext import key_text, path_of
from jitwarm.backends.fa4.recipe import FA4Recipe
from jitwarm.backends.miss import Miss, serving

_SYMBOL = "func"  # as in the library's own files


@dataclass(frozen=True, slots=True)
class Work:
    """What one recipe compiles: none of it is anybody else's.

    `caches` are the library's own, by function.
    """

    share: dict[Asked, Compile]
    caches: dict[str, Any]


def share_out(recipes: Iterable[FA4Recipe]) -> dict[str, Work]:
    """The work of each recipe, by its canonical text.

    A kernel goes to the first recipe that needs it. A recipe that the library refuses gets none.
    """
    taken: set[Asked] = set()
    work: dict[str, Work] = {}
    for recipe in recipes:
        with watching(library.interface("attention")) as watched:
            caches = {function: cache.original for function, cache in watched.items()}
        try:
            captured = calls.capture(recipe)
        except Exception:  # its compile will raise it again, where it is reported
            captured = {}
        share = {asked: args for asked, args in captured.items() if asked not in taken}
        taken.update(share)
        work[recipe.canonical()] = Work(share, caches)
    return work


def compile_share(work: Work, folder: Path) -> Path:
    """Compile and export, in a forked child. Raises what the compiler raises."""
    from cutlass import cute

    library.stand_in_for_driver()
    names: list[str] = []
    for (function, key), (args, kwargs) in work.share.items():
        miss = Miss(path_of(function), key_text(function, key))
        sinks.ask(miss)
        try:
            # Nothing is launched here: no engine is made for it.
            with cutedsl.compiling(library.target()), library.quiet(), serving(miss):
                compiled = cute.compile(*args, **kwargs, no_jit_engine=True)
        finally:
            sinks.compiled(miss)
        cache = work.caches[function]
        if _is_on_disk(cache):
            cache[key] = compiled
        else:
            name = f"{keys.key_id(miss.text)}.o"
            compiled.export_to_c(str(folder / name), function_name=_SYMBOL)
            names.append(name)
    done = folder / f"{keys.key_id(' '.join(map(repr, work.share)))}.json"
    done.write_text(json.dumps(names))
    return done


def take_over(work: Work, path: Path) -> None:
    """Put a child's kernels into the library's caches of this process.

    Raises what the reader of object files raises; `KeyError` for a kernel that is not there.
    """
    from cutlass import cute

    names = set(json.loads(path.read_text()))
    for function, key in work.share:
        cache = work.caches[function]
        if key in cache:  # a launch may have compiled it meanwhile
            continue
        name = f"{keys.key_id(key_text(function, key))}.o"
        if name not in names:
            raise KeyError(name)
        with cutedsl.compile_lock:
            module = cute.runtime.load_module(str(path.parent / name), enable_tvm_ffi=True)
        cache.cache[key] = getattr(module, _SYMBOL)


def _is_on_disk(cache: Any) -> bool:
    return hasattr(cache, "cache_path")
