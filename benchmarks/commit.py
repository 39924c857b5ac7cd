"""Is the jitwarm that is imported here the commit that asv records the numbers under?

`asv run -E existing:... --set-commit-hash HASH` writes whatever runs under HASH and asks nobody.
With JITWARM_BENCH_COMMIT=HASH a measurement of anything else raises.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from importlib import metadata
from pathlib import Path

from benchmarks.tracks import BrokenMeasurementError

VARIABLE = "JITWARM_BENCH_COMMIT"
# So short a hash names one commit in any project of this size; shorter ones are mistakes.
SHORTEST = 7


def check_commit() -> None:
    """Raise `BrokenMeasurementError` unless the imported jitwarm is the commit that the variable
    names, without changes. Does nothing where the variable is not set or empty.
    """
    wanted = os.environ.get(VARIABLE, "").strip()
    if not wanted:
        return
    if len(wanted) < SHORTEST or set(wanted.lower()) - set("0123456789abcdef"):
        raise BrokenMeasurementError(f"{VARIABLE}={wanted!r}: expected a commit's hash")
    package = package_folder()
    found = installed_commit(package)
    if not found.startswith(wanted.lower()):
        raise BrokenMeasurementError(
            f"{VARIABLE} is {wanted}, and the jitwarm in {package} is {found}: install the commit "
            "that is measured"
        )


def package_folder() -> Path:
    """Where the jitwarm lies that `import jitwarm` takes. Raises if there is none."""
    spec = importlib.util.find_spec("jitwarm")
    if spec is None or spec.origin is None:
        raise BrokenMeasurementError("jitwarm is not installed in this environment")
    return Path(spec.origin).resolve().parent


def installed_commit(package: Path) -> str:
    """The full hash of the commit that this folder of jitwarm is.

    A folder that git tracks is a checkout: its HEAD, if nothing below the folder was changed or
    added. Else what pip noted when it installed from a repository. Raises where neither tells.
    """
    # A wheel in a `.venv` inside of some checkout lies in that checkout and is not part of it.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return _noted_by_pip(package)
    changes = _git(package, "status", "--porcelain", "--untracked-files=all", "--", ".")
    head = _git(package, "rev-parse", "HEAD")
    if head is None or changes is None:
        raise BrokenMeasurementError(f"git cannot tell the commit of {package}")
    if changes:
        first = changes.splitlines()[0].strip()
        raise BrokenMeasurementError(f"{package} is not commit {head}: it has changes ({first})")
    return head


def _noted_by_pip(package: Path) -> str:
    """From `direct_url.json`, which pip writes for installs from a repository (PEP 610)."""
    try:
        text = metadata.distribution("jitwarm").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    commit = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
    if not commit:
        raise BrokenMeasurementError(
            f"nobody can tell which commit {package} is: install it editable from a checkout, or "
            "from a repository (pip install git+...)"
        )
    return str(commit)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says about a folder, None where it fails or is not there."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
