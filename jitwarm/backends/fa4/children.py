"""Compiles in forked children: what a child gets, and what it hands back.

The parent calls the library once for each recipe and keeps the arguments of its compiles; a child
runs the compiler on them and writes object files. So a child needs no GPU and makes no tensors:
CUDA cannot be used in the fork of a process that uses it. Where the library has a cache on disk, a
child stores there, and the parent reads it from there.

A helper that several recipes need is in the work of each: whichever child gets to it first compiles
it, the others wait for that and list its file. So what one child hands over is all that a launch of
its recipe needs, whatever becomes of other children.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jitwarm import keys
from jitwarm.backends import sinks
from jitwarm.backends.cutedsl import library as cutedsl
from jitwarm.backends.fa4 import calls, library
from jitwarm.backends.fa4.caches import Compile
from jitwarm.backends.fa4.hooks import watching
from jitwarm.backends.fa4.keytext import MAIN, key_text, path_of
from jitwarm.backends.fa4.pending import Asked
from jitwarm.backends.fa4.recipe import FA4Recipe
from jitwarm.backends.miss import Miss, serving

_SYMBOL = "func"  # as in the library's own files


@dataclass(frozen=True, slots=True)
class Work:
    """What one recipe needs and this process did not have when it was asked.

    `caches` are the library's own, by function.
    """

    compiles: dict[Asked, Compile]
    caches: dict[str, Any]


def work_of(recipes: Iterable[FA4Recipe]) -> dict[str, Work]:
    """The work of each recipe, by its canonical text; none for one that the library refuses."""
    work: dict[str, Work] = {}
    for recipe in recipes:
        with watching(library.interface("attention")) as watched:
            caches = {function: cache.original for function, cache in watched.items()}
        # Whatever this raises, a compile in this process raises it too, where it is told.
        with contextlib.suppress(Exception):
            work[recipe.canonical()] = Work(calls.capture(recipe), caches)
    return work


def compile_work(work: Work, folder: Path) -> Path:
    """Compile and export, in a forked child. Raises what the compiler raises."""
    library.stand_in_for_driver()
    names: list[str] = []
    # The main kernel first, which no other child compiles: where that fails, its helpers are left
    # to those who can use them.
    for asked in sorted(work.compiles, key=lambda asked: asked[0] != MAIN):
        on_disk = _is_on_disk(work.caches[asked[0]])
        name = f"{keys.key_id(key_text(*asked))}.{'stored' if on_disk else 'o'}"
        with _alone(folder / f"{name}.lock"):
            if not (folder / name).exists():
                _compile_to(folder / name, asked, work)
        if not on_disk:
            names.append(name)
    done = folder / f"{keys.key_id(' '.join(map(repr, work.compiles)))}.json"
    done.write_text(json.dumps(names))
    return done


def _compile_to(path: Path, asked: Asked, work: Work) -> None:
    """Compile one kernel into `path`, which is there only when it is complete; where the library
    has a cache on disk, into that, and `path` says so.
    """
    from cutlass import cute

    function, key = asked
    args, kwargs = work.compiles[asked]
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
        path.touch()
    else:
        partial = path.with_name(f"partial-{path.name}")
        compiled.export_to_c(str(partial), function_name=_SYMBOL)
        partial.replace(path)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time: a lock that the system takes back from a process that ends."""
    import fcntl  # where a process can fork, this is too

    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def take_over(work: Work, path: Path) -> None:
    """Put a child's kernels into the library's caches of this process.

    Raises what the reader of object files raises; `KeyError` for a kernel that is not there.
    """
    from cutlass import cute

    names = set(json.loads(path.read_text()))
    # Under watch: these kernels were not launched yet.
    with watching(library.interface("attention")):
        for function, key in work.compiles:
            cache = work.caches[function]
            if key in cache:  # a launch may have compiled it meanwhile, or another recipe's child
                continue
            name = f"{keys.key_id(key_text(function, key))}.o"
            if name not in names:
                raise KeyError(name)
            with cutedsl.compile_lock:
                module = cute.runtime.load_module(str(path.parent / name), enable_tvm_ffi=True)
            cache.cache[key] = getattr(module, _SYMBOL)


def _is_on_disk(cache: Any) -> bool:
    return hasattr(cache, "cache_path")
