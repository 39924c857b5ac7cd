"""Where a side runs, and what it finds there: the same place in base's folder as in the user's."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import msgspec

# What is installed is the same for both sides, even where it lies in the repository (`.venv`).
_INSTALLED = {"site-packages", "dist-packages"}
_STANDARD = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}


class Layout(msgspec.Struct, frozen=True):
    """The user's place, told relative to the repository so that it can be moved to a side.

    `here` is the current folder (the root if the user stands elsewhere), `scenario` the file or
    folder as seen from there, `inside` entries of `sys.path` in the repository that are no
    installed packages, `outside` those of PYTHONPATH that are not in it.
    """

    repository: Path
    here: Path
    scenario: str
    inside: tuple[Path, ...]
    outside: tuple[str, ...]

    def folder(self, root: Path) -> Path:
        """Where the processes of a side with this root start."""
        return root / self.here

    def python_path(self, root: Path, extra: Sequence[str] = ()) -> str:
        """PYTHONPATH of a side: `extra`, the side's own folders, then the user's others.

        Its own come first, so they win over an installation from the working tree.
        """
        own = [self.folder(root), *(root / part for part in self.inside)]
        entries = [*extra, *(str(path) for path in own if path.is_dir()), *self.outside]
        # A separator cannot be written into PYTHONPATH; the current folder is found without it.
        return os.pathsep.join(dict.fromkeys(one for one in entries if os.pathsep not in one))


def layout(repository: Path, scenario: Path, python_path: str) -> Layout:
    """What `Layout` says, for the current process; `python_path` is its PYTHONPATH."""
    here = Path.cwd()
    here = here if here.is_relative_to(repository) else repository
    # A file may be a link to elsewhere: what counts is where the link is.
    is_folder = scenario.is_dir()
    place = scenario.resolve() if is_folder else scenario.parent.resolve() / scenario.name
    listed = [Path(entry or ".").absolute() for entry in python_path.split(os.pathsep) if entry]
    inside = [
        path.relative_to(repository)
        for path in map(Path.resolve, map(Path, sys.path))
        if path.is_relative_to(repository) and path.is_dir() and not is_installed(path)
    ]
    return Layout(
        repository,
        here.relative_to(repository),
        os.path.relpath(place, here),
        tuple(dict.fromkeys(inside)),
        tuple(str(path) for path in listed if not path.resolve().is_relative_to(repository)),
    )


def is_installed(path: Path) -> bool:
    """Whether a file or folder belongs to this interpreter's installation."""
    return not _INSTALLED.isdisjoint(path.parts) or is_standard(path)


def is_standard(path: Path) -> bool:
    """Whether a file or folder belongs to the standard library."""
    return _INSTALLED.isdisjoint(path.parts) and any(map(path.is_relative_to, _STANDARD))
