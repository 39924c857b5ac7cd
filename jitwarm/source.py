"""Which commit a file lies in, and whether it is in one at all: asked of git, and empty where git
has no answer.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from jitwarm.record import SourceRecord

# A repository on a slow disk may take seconds to compare; a run takes longer.
LIMIT_S = 30


def source_of(path: Path) -> SourceRecord:
    """The commit that is checked out where `path` lies, its date, and whether tracked files differ.

    Empty without git, without a repository, or before its first commit. Never raises for what git
    does; changes nothing in the repository.
    """
    folder = path.absolute() if path.is_dir() else path.absolute().parent
    head = _git(folder, "log", "-1", "--no-show-signature", "--format=%H %cI")
    if head is None or len(head.split()) != 2:
        return SourceRecord()
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    commit, date = head.split()
    # Unknown is not clean.
    return SourceRecord(commit, date, dirty=changes is None or bool(changes.strip()))


def is_ignored(path: Path) -> bool:
    """Whether git leaves a file out of its repository; False where git has no answer."""
    return _git(path.absolute().parent, "check-ignore", "--quiet", "--", path.name) is not None


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says in a folder; None where it fails, hangs or is not installed."""
    # In a git hook these name the hook's repository, which need not be the file's.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"  # `status` would rewrite the index in passing
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=LIMIT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")
