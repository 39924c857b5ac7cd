"""Which keys of a kernel Triton holds in memory: what a miss can be compared with where nobody
planned anything.
"""

from __future__ import annotations

from typing import Any

from jitwarm.backends.triton.keytext import key_text, specialization_from_compile
from jitwarm.backends.triton.naming import known_function

# Launch options that a compiled kernel remembers as they were given.
_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "launch_cooperative_grid", "debug")


def keys_in_memory(path: str) -> list[str]:
    """The canonical keys of the binaries of the kernel at this import path, on every device, in the
    order in which they came.

    Of one that was compiled while nobody watched, rare options are left out. Empty for a kernel
    that this process has not met.
    """
    fn = known_function(path)
    found: dict[str, None] = {}
    for kernel_cache, _, target, backend, _ in list(getattr(fn, "device_caches", {}).values()):
        for kernel in list(kernel_cache.values()):
            text = _text(fn, kernel, target, backend)
            if text:
                found[text] = None
    return list(found)


def _text(fn: Any, kernel: Any, target: Any, backend: Any) -> str:
    known = getattr(kernel, "jitwarm_key", None)
    if known is not None:
        return str(known[1])
    source, metadata = getattr(kernel, "src", None), getattr(kernel, "metadata", None)
    if source is None or metadata is None:  # it stands for a kernel: a replay's, or one under way
        return ""
    try:
        constants = {_path(fn, name): value for name, value in source.constants.items()}
        pairs = specialization_from_compile(fn, source.signature, constants, source.attrs)
        given = {name: getattr(metadata, name) for name in _OPTIONS if hasattr(metadata, name)}
        return key_text(fn, pairs, backend.parse_options(given), backend, target, strict=False)
    except Exception:  # it is asked for the sake of a message, which must not fail itself
        return ""


def _path(fn: Any, name: Any) -> Any:
    """Triton's key of a constant: a path of indices, or the argument's name."""
    return name if isinstance(name, tuple) else (fn.arg_names.index(name),)
