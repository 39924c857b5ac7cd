"""Are the places there that a compiler is watched from? Asked before the first one is wrapped, so
that a compiler is watched everywhere or not at all.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from jitwarm.errors import HookPointMissing


def require(backend: str, distribution: str, owner: Any, names: Iterable[str]) -> None:
    """Raise `HookPointMissing` for the first of `names` that `owner`, a class or module, lacks.

    `backend` and the version of the installed `distribution` go into the message.
    """
    for name in names:
        if not hasattr(owner, name):
            raise HookPointMissing(backend, version_of(distribution), place_name(owner, name))


def require_parameters(
    backend: str, distribution: str, owner: Any, name: str, parameters: tuple[str, ...]
) -> None:
    """Raise `HookPointMissing` if the compiler's own `owner.name` takes other parameters than
    `parameters`, which ours passes on. A function that somebody else put there is not judged.
    """
    function = getattr(owner, name)
    if getattr(function, "__module__", "") != getattr(owner, "__module__", None):
        return
    if hasattr(function, "__wrapped__"):  # somebody wrapped it, and wraps takes over the module
        return
    found = tuple(inspect.signature(function).parameters)
    if found != parameters:
        problem = f"takes ({', '.join(found)}) and not ({', '.join(parameters)})"
        place = place_name(owner, name)
        raise HookPointMissing(backend, version_of(distribution), place, problem)


def place_name(owner: Any, name: str) -> str:
    """`package.module.Class.name`."""
    module = getattr(owner, "__module__", None) or type(owner).__module__
    if inspect.ismodule(owner):
        return f"{owner.__name__}.{name}"
    return f"{module}.{getattr(owner, '__qualname__', type(owner).__qualname__)}.{name}"


def version_of(distribution: str) -> str:
    """The installed version, as its package says."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "(version unknown)"
