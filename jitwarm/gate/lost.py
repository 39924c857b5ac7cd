"""Expectations whose scenario is gone: nothing plans them any more, so nothing else would fail."""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

from jitwarm.errors import StoredFileError
from jitwarm.gate import expectation
from jitwarm.source import is_ignored

# Not the project's own files, and many; beside hidden folders and virtual environments.
_SKIPPED = {"build", "dist", "node_modules", "site-packages", "__pycache__"}


def lost_scenarios(expected: Path, known: Collection[str], project: Path) -> list[Path]:
    """The files of expectations in `expected` that are of no scenario of the project.

    `known` are scenarios that are there; the project's folders are searched for others only if
    there is a file of another name.
    """
    files = [path for path in sorted(expected.glob("*.json")) if path.stem not in known]
    wanted = {path.stem for path in files}
    names = {name for name, path in _scenarios(project, wanted) if not is_ignored(path)}
    return [path for path in files if path.stem not in names and _is_one(path)]


def _scenarios(project: Path, wanted: Collection[str]) -> Iterator[tuple[str, Path]]:
    """The scenario files of these names in a project's own folders."""
    for folder, folders, files in os.walk(project) if wanted else ():
        folders[:] = [name for name in folders if _is_own(Path(folder, name))]
        for path in (Path(folder, name) for name in files if name.endswith(".toml")):
            name = _scenario_name(path)
            if name in wanted:
                yield name, path


def _is_own(folder: Path) -> bool:
    skipped = folder.name.startswith(".") or folder.name in _SKIPPED
    return not skipped and not (folder / "pyvenv.cfg").exists()


def _scenario_name(path: Path) -> str:
    """The name of the scenario in a file; empty for another program's."""
    # A scenario that is broken has an error of its own.
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = tomllib.loads(path.read_text("utf-8"))
        if type(found.get("schema")) is int and isinstance(found.get("model"), str):
            return str(found.get("name"))
    return ""


def _is_one(path: Path) -> bool:
    with contextlib.suppress(StoredFileError):
        expectation.read(path, path.stem)
        return True
    return False
