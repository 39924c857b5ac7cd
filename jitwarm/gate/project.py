"""Where a scenario's project is, and how its files are named to people and to GitHub."""

from __future__ import annotations

from pathlib import Path


def project_of(scenario: Path) -> Path:
    """The root of a scenario file's project: that of its git repository, else the nearest folder
    with a `pyproject.toml`, else the folder that holds the scenario's.
    """
    folders = scenario.resolve().parents
    for mark in (".git", "pyproject.toml"):
        for folder in folders:
            if (folder / mark).exists():
                return folder
    return folders[min(1, len(folders) - 1)]


def expected_folder(scenario: Path) -> Path:
    """Where the expectations of a scenario's project are."""
    return project_of(scenario) / "reports" / "expected"


def in_project(path: Path) -> str:
    """A path as an annotation needs it: relative to the project's root."""
    root = project_of(path)
    return text_of(path.resolve().relative_to(root))


def shown(path: Path) -> str:
    """A path as people would type it: relative to the current folder if it is below it."""
    try:
        return text_of(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return text_of(path)


def text_of(path: Path) -> str:
    """A path as text that can be encoded: a name may hold bytes that are no UTF-8."""
    return str(path).encode(errors="surrogateescape").decode(errors="backslashreplace")
