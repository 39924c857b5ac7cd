"""What the library's caches are asked for by a recipe, remembered: a probe costs some 2 ms."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from jitwarm import device
from jitwarm.backends.fa4 import calls
from jitwarm.backends.fa4.keytext import MAIN, key_text
from jitwarm.backends.fa4.pending import Asked
from jitwarm.backends.fa4.recipe import FA4Recipe
from jitwarm.errors import BindingError


def asked_by(recipe: FA4Recipe) -> tuple[Asked, ...]:
    """The keys that a call of `recipe` asks for, in order. Compiles nothing.

    Raises `BindingError` where the library refuses the call, and `MissingExtraError` where it is
    not installed.
    """
    return _asked_by(device.current(), recipe.canonical(), _Held(recipe))


def texts_of(recipe: FA4Recipe) -> tuple[str, ...]:
    """The canonical keys of a call: the main kernel's, then those of the small kernels, sorted."""
    asked = asked_by(recipe)
    main = [entry for entry in asked if entry[0] == MAIN]
    if not main:
        raise BindingError(f"{recipe.entry}: this call launches nothing, as it has no tokens")
    return (key_text(*main[0]), *sorted({key_text(*e) for e in asked if e[0] != MAIN}))


@dataclass(frozen=True, slots=True)
class _Held:
    """A recipe that takes no part in equality: its canonical text stands for it."""

    recipe: FA4Recipe

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=4096)
def _asked_by(_current: device.Device, _canonical: str, held: _Held) -> tuple[Asked, ...]:
    return tuple(dict.fromkeys(calls.probe(held.recipe)))
