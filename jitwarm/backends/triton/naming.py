"""Names for kernels: the import path of the JITFunction object itself."""

from __future__ import annotations

import hashlib
import importlib
import sys
import threading
from typing import Any

from jitwarm.errors import DeclarationError

_lock = threading.Lock()
# Both directions are kept for the life of the process; the values keep the functions alive, so no
# id is ever reused.
_path_of: dict[int, tuple[Any, str]] = {}
_function_at: dict[str, Any] = {}


def import_path(fn: Any) -> str:
    """The path under which `fn`, a JITFunction (or its interpreted twin), can be imported:
    `package.module.name`.

    The object is looked up in its module, because two JITFunctions over one Python function
    (`triton.jit(f.fn, do_not_specialize=[...])` beside `f`) share module and qualified name and yet
    are other kernels. One that no module attribute holds gets its qualified name and eight digits
    of the hash of what makes it another kernel.
    """
    known = _path_of.get(id(fn))
    if known is not None:
        return known[1]
    with _lock:
        path = _find(fn)
        _path_of[id(fn)] = (fn, path)
        _function_at.setdefault(path, fn)
    return path


def function_at(path: str) -> Any:
    """The JITFunction with this import path. Raises `DeclarationError` if there is none."""
    fn = _function_at.get(path)
    if fn is not None:
        return fn
    module, _, name = path.rpartition(".")
    try:
        fn = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise DeclarationError(
            f"{path}: no such kernel ({error}); keep the kernel importable from its module"
        ) from error
    import_path(fn)
    return fn


def known_functions() -> list[Any]:
    """Every JITFunction whose path was ever asked for in this process."""
    return [fn for fn, _ in list(_path_of.values())]


def _find(fn: Any) -> str:
    python = fn.fn
    module = getattr(fn, "module", None) or python.__module__
    namespace = vars(sys.modules[module]) if module in sys.modules else {}
    if namespace.get(python.__name__) is fn:
        return f"{module}.{python.__name__}"
    for name, value in namespace.items():
        if value is fn:
            return f"{module}.{name}"
    return f"{module}.{python.__qualname__}#{_fingerprint(fn)}"


def _fingerprint(fn: Any) -> str:
    """Eight digits over what tells two unnamed kernels apart: their source and what they do not
    specialise on.
    """
    parts = (
        getattr(fn, "src", None) or getattr(fn.fn, "__qualname__", ""),
        repr(getattr(fn, "do_not_specialize", None)),
        repr(getattr(fn, "do_not_specialize_on_alignment", None)),
    )
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:8]
