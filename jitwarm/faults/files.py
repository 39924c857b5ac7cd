"""Fault files: find them, load them, take the faults out of them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from jitwarm.errors import FaultError
from jitwarm.faults.form import Fault


def find(paths: Iterable[str | Path]) -> list[Path]:
    """The files of `paths`; a folder stands for the Python files in it and below.

    Raises `FaultError` for a folder without any, and for no path at all.
    """
    found: dict[Path, None] = {}
    for given in map(Path, paths):
        if given.is_dir():
            inside = [path for path in sorted(given.rglob("*.py")) if path.name != "__init__.py"]
            if not inside:
                raise FaultError(f"{given}: no fault file (*.py) in this folder or below")
            found |= dict.fromkeys(inside)
        else:
            found[given] = None
    if not found:
        raise FaultError("no fault file was named: jitwarm faults FILE...")
    return list(found)


def load(path: Path) -> list[tuple[str, Fault]]:
    """The faults of a file by the names that its module gives them, in order.

    Raises `FaultError`, in one line, for a file that is not there, does not load or has none.
    """
    if not path.is_file():
        raise FaultError(f"{path}: there is no such file")
    # The name of a kernel's module is part of its key, so it must not depend on the folder; nor may
    # it take the name of a module that somebody needs.
    name = f"fault_{path.stem}" if _is_taken(path) else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FaultError(f"{path}: a fault is a Python file, named *.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the file does
        text = " ".join(str(error).split())
        if isinstance(error, FaultError):
            raise FaultError(f"{path}: {text}") from error
        line = _line(error, module.__file__)
        raise FaultError(f"{path}{line}: {type(error).__name__}: {text}") from error
    faults = [pair for name, value in vars(module).items() for pair in _faults(name, value)]
    if not faults:
        raise FaultError(
            f"{path}: no Fault at the top level; define one, as in FAULT = Fault('title', ...)"
        )
    return faults


def _faults(name: str, value: object) -> Iterable[tuple[str, Fault]]:
    if isinstance(value, Fault):
        return [(name, value)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(f"{name}[{i}]", one) for i, one in enumerate(value) if isinstance(one, Fault)]
    return []


def _is_taken(path: Path) -> bool:
    """Whether a module of the file's name is there, other than the file itself."""
    if path.stem in sys.modules:
        return True
    found = importlib.util.find_spec(path.stem)
    return found is not None and Path(found.origin or "").name != path.name


def _line(error: Exception, path: str | None) -> str:
    """`:12`, the last line of the file itself that the error came through."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line
