"""What one CuTe DSL compile needs, and the canonical text of its key."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from jitwarm import keys
from jitwarm.backends.cutedsl import library

_lock = threading.Lock()
_numbers: dict[str, Iterator[int]] = {}


@dataclass(frozen=True, slots=True)
class CuTeDSLRecipe:
    """A kernel object and one of its keys; `kernel.compile(key)` makes the binary.

    The object travels to forked children only, so nothing is pickled.
    """

    backend: ClassVar[str] = "cutedsl"

    kernel: Any
    key: Any


def object_path(kernel: Any) -> str:
    """The name of a new kernel object in key texts: `package.module.Class`.

    Several objects of one class have executors of their own, so the second one is `...Class#2`, in
    order of construction.
    """
    kind = type(kernel)
    path = f"{kind.__module__}.{kind.__qualname__}"
    with _lock:
        number = next(_numbers.setdefault(path, itertools.count(1)))
    return path if number == 1 else f"{path}#{number}"


def key_text(path: str, fields: tuple[str, ...], key: Any, options: str) -> str:
    """The canonical backend key: `path[head_dim=128; causal=True]{sm_90a; --enable-tvm-ffi}`.

    `fields` are the field names of the declared key (none: the key is one value), `options` the
    compile options. Compiles nothing; imports nothing.
    """
    inner = "; ".join(f"{name}={keys.canonical(getattr(key, name))}" for name in fields)
    settings = "; ".join(filter(None, (library.architecture(options), options)))
    return f"{path}[{inner if fields else keys.canonical(key)}]{{{settings}}}"
