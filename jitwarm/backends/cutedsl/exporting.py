"""A compiled function as a file: written in a forked child, read in its parent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jitwarm import keys
from jitwarm.backends.cutedsl import library
from jitwarm.backends.cutedsl.compiling import NothingLaunched
from jitwarm.backends.cutedsl.loading import is_tvm_ffi
from jitwarm.errors import RunError

_SYMBOL = "jitwarm_entry"


def export(executor: Any, folder: Path, text: str) -> Path:
    """Write a tvm-ffi function as an object file into `folder`; returns its path.

    The file has its name only when it is complete. Raises `RunError` for a function that would
    behave otherwise when it is read back: the file holds positional arguments only.
    """
    compiled = executor.compiled if isinstance(executor, NothingLaunched) else executor
    if not is_tvm_ffi(compiled) or not hasattr(compiled, "export_to_c"):
        raise RunError(f"{text}: no tvm-ffi function of this compiler, so it cannot be handed on")
    arguments = compiled.execution_args
    named = arguments.get_kwargs_wrapper_spec()
    if named.arg_defaults or named.kwonly_names or arguments.has_pointer_address_arg_specs:
        raise RunError(f"{text}: its arguments have defaults or names, which no object file keeps")
    path = folder / f"{keys.key_id(text)}.o"
    draft = path.with_suffix(f".{os.getpid()}.o")  # the suffix decides the format
    compiled.export_to_c(str(draft), function_name=_SYMBOL)
    draft.replace(path)
    return path


def read_back(path: Path) -> Any:
    """The function in an object file that `export` wrote."""
    cute = library.load("an exported CuTe DSL kernel")
    with library.compile_lock:
        function = getattr(cute.runtime.load_module(str(path), enable_tvm_ffi=True), _SYMBOL)
    return NothingLaunched(function) if library.is_stub() else function
