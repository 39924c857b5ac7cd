"""Names for kernels: the import path of the JITFunction object itself."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import sys
import threading
from typing import Any

from jitwarm import keys
from jitwarm.errors import DeclarationError, KeyValueError

_MOST_WRAPPERS = 16  # autotuners and heuristics over one kernel: more are a ring
# What stands behind the fingerprint of a second object of one kernel.
_NUMBER = re.compile(r"(?<=#[0-9a-f]{8})~(\d+)")
_lock = threading.RLock()  # a fingerprint may ask for the path of another kernel
# Both directions are kept for the life of the process; the values keep the functions alive, so no
# id is ever reused.
_path_of: dict[int, tuple[Any, str]] = {}
_function_at: dict[str, Any] = {}


def import_path(fn: Any) -> str:
    """The path under which `fn`, a JITFunction (or its interpreted twin), can be imported:
    `package.module.name`.

    The object is looked up in its module, because two JITFunctions over one Python function
    (`triton.jit(f.fn, do_not_specialize=[...])` beside `f`) share module and qualified name and yet
    are other kernels. A kernel inside an autotuner has the autotuner's path. One that no module
    attribute holds gets its qualified name and eight digits of the hash of what makes it another
    kernel; a second object with all of that equal is numbered, for Triton keeps its binaries apart.
    """
    known = _path_of.get(id(fn))
    if known is not None:
        return known[1]
    with _lock:
        path = _held_path(fn)
        if path is None:
            path = _unheld_path(fn)
        # Of a module that was loaded again the new kernel counts, not the one it replaced.
        _function_at[path] = fn
        _path_of[id(fn)] = (fn, path)
    return path


def is_made_anew(path: str) -> bool:
    """Whether this is the path (or a key) of a second object of one kernel."""
    return _NUMBER.search(path) is not None


def without_number(text: str) -> str:
    """`text` with all objects of one kernel called like the first of them."""
    return _NUMBER.sub("", text)


def natural_order(text: str) -> str:
    """What to sort paths and keys by: the tenth object of a kernel comes behind the ninth."""
    return _NUMBER.sub(lambda found: f"~{int(found[1]):09}", text)


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
    fn = _innermost(fn)
    if not _is_kernel(fn):
        raise DeclarationError(
            f"{path}: no such kernel (it is a {type(fn).__module__}.{type(fn).__qualname__}); keep "
            "the kernel importable from its module"
        )
    import_path(fn)
    return fn


def known_function(path: str) -> Any:
    """The JITFunction of this path if its path was asked for in this process, else None: unlike
    `function_at` it imports nothing.
    """
    return _function_at.get(path)


def known_functions() -> list[Any]:
    """Every JITFunction whose path was ever asked for in this process."""
    return [fn for fn, _ in list(_path_of.values())]


def is_function(value: Any) -> bool:
    """Whether this is Triton's wrapper of a Python function: a JITFunction, or one that runs at
    compile time. Asked of the type, as in `_is_kernel`.
    """
    from triton.runtime.jit import JITCallable

    return issubclass(type(value), JITCallable) and hasattr(value, "fn")


def _held_path(fn: Any) -> str | None:
    """The path of the module attribute that holds `fn`, its own name first."""
    module = _module(fn)
    namespace = dict(vars(sys.modules[module])) if module in sys.modules else {}
    own = fn.fn.__name__
    names = [own, *(name for name in namespace if name != own)]
    for name in names:
        if namespace.get(name) is fn:
            return f"{module}.{name}"
    for name in names:
        if _innermost(namespace.get(name)) is fn:
            return f"{module}.{name}"
    return None


def _unheld_path(fn: Any) -> str:
    path = f"{_module(fn)}.{fn.fn.__qualname__}#{_fingerprint(fn)}"
    number = 1
    while path in _function_at:
        number += 1
        path = f"{path.partition('~')[0]}~{number}"
    return path


def _module(fn: Any) -> str:
    return str(getattr(fn, "module", None) or fn.fn.__module__)


def _innermost(value: Any) -> Any:
    """The JITFunction inside an autotuner, heuristics, or an object of ours that says on its type
    that it `wraps_kernel`; any other object is returned as it is.
    """
    for _ in range(_MOST_WRAPPERS):
        if getattr(type(value), "wraps_kernel", None) is True:
            value = value.kernel
        inner = getattr(value, "fn", None) if _is_kernel(value) else None
        if not _is_kernel(inner):
            return value
        value = inner
    return value


def _is_kernel(value: Any) -> bool:
    """Whether this is a JITFunction, its interpreted twin, an autotuner or heuristics.

    Asked of the type: a module may hold objects that claim to have every attribute
    (`unittest.mock.call`), to be of another class, or that raise when asked (`torch.classes`).
    """
    from triton.runtime.jit import KernelInterface

    return issubclass(type(value), KernelInterface)


def _fingerprint(fn: Any) -> str:
    """Eight digits over what tells two unnamed kernels apart: their source, what they do not
    specialise on, and the values of the function around them that they use.
    """
    closure = inspect.getclosurevars(fn.fn).nonlocals if fn.fn.__closure__ else {}
    parts = (
        getattr(fn, "src", None) or getattr(fn.fn, "__qualname__", ""),
        repr(getattr(fn, "do_not_specialize", None)),
        repr(getattr(fn, "do_not_specialize_on_alignment", None)),
        *(f"{name}={_captured(value)}" for name, value in sorted(closure.items())),
    )
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:8]


def _captured(value: Any) -> str:
    if _is_kernel(value):
        return import_path(_innermost(value))
    try:
        return keys.canonical(value)
    except KeyValueError:
        return type(value).__qualname__
