"""Expectations whose scenario is gone: nothing plans them any more, so nothing else would fail."""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

from jitwarm.errors import StoredFileError
from jitwarm.gate import expectation

# Not the project's own files, and many.
_SKIPPED = {".git", "node_modules", "site-packages"}


def lost_scenarios(expected: Path, known: Collection[str], project: Path) -> list[Path]:
    """The files of expectations in `expected` that are of no scenario of the project.

    `known` are scenarios that are there; the project's folders are searched for others only if
    there is a file of another name.
    """
    files = [path for path in sorted(expected.glob("*.json")) if path.stem not in known]
    names = set(_names(project)) if files else set()
    return [path for path in files if path.stem not in names and _is_one(path)]


def _names(project: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(project):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        for name in files:
            if name.endswith(".toml"):
                # Another program's file; a scenario that is broken has an error of its own.
                with contextlib.suppress(OSError, ValueError, RecursionError):
                    yield str(tomllib.loads(Path(folder, name).read_text("utf-8")).get("name"))


def _is_one(path: Path) -> bool:
    with contextlib.suppress(StoredFileError):
        expectation.read(path, path.stem)
        return True
    return False
