"""Base and head as folders: detached worktrees of the scenario's repository in a scratch folder.

They are gone at the end, whatever ends the comparison. Only `git worktree` writes to the repository
(below `.git/worktrees`); no branch, index or file of the working tree is touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from jitwarm.amounts import counted
from jitwarm.errors import BaselineError, RunError

# New files that can change what is run.
CODE = (b".py", b".toml", b".so")
# Of the bytes: no program that the user's configuration names for showing them is run.
_DIFFERENCES = ("diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD")


class Tree(msgspec.Struct, frozen=True):
    """One side's folder.

    `name` as the user wrote it, empty for the working tree; `commit` its full hash (of a working
    tree: what it is based on), `tree` the hash of that commit's content. `changed` counts files of
    a working tree that differ from its commit, new ones of code too, and `state` is a hash over
    them.
    """

    folder: Path
    name: str
    commit: str
    tree: str
    changed: int = 0
    state: str = ""

    @property
    def title(self) -> str:
        """For people: `main~3 (1a2b3c4d5e)`, or the working tree and what it is based on."""
        if self.name:
            return f"{self.name} ({self.commit[:10]})"
        files = counted(self.changed, "changed file")
        return f"the working tree at {self.commit[:10]}" + f", {files}" * bool(self.changed)


def repository_of(folder: Path) -> Path:
    """The root of the git working tree that holds `folder`, which need not exist itself.

    Raises `BaselineError` outside of one: without history there is no base.
    """
    place = folder.resolve()
    while not place.is_dir():
        place = place.parent
    done = _git(place, "rev-parse", "--show-toplevel", check=False)
    if done.returncode:
        said = _last_line(done.stderr)
        raise BaselineError(f"{folder}: no git repository holds it, so there is no base ({said})")
    return Path(os.fsdecode(done.stdout.removesuffix(b"\n")))


def commit_of(repository: Path, revision: str) -> str:
    """The full hash of a revision. Raises `BaselineError` if the repository has no such commit."""
    done = _git(
        repository, "rev-parse", "--verify", "--quiet", "--end-of-options",
        f"{revision}^{{commit}}", check=False,
    )  # fmt: skip
    if done.returncode:
        raise BaselineError(
            f"{repository}: has no commit {revision!r}; of a shallow clone fetch more first, as "
            "in git fetch --unshallow"
        )
    return done.stdout.decode().strip()


def working_tree(repository: Path) -> Tree:
    """The files as they are now, changed and new ones too. Raises `BaselineError` without any
    commit.
    """
    commit = commit_of(repository, "HEAD")
    status = _git(
        repository, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"
    ).stdout
    entries = [entry for entry in _entries(status) if not entry.startswith(b"?? ")]
    state = hashlib.sha256(commit.encode())
    state.update(_git(repository, *_DIFFERENCES).stdout)
    for entry in _entries(status):
        # Of new files only those that can be code: a log may grow while times are measured.
        if entry.startswith(b"?? ") and entry.endswith(CODE):
            entries.append(entry)
            state.update(entry + _content(repository / os.fsdecode(entry[3:])))
    return Tree(
        repository, "", commit, _tree_of(repository, commit), len(entries), state.hexdigest()
    )


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="jitwarm-compare-")).resolve()
    try:
        yield folder
    finally:
        with _uninterrupted():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def checked_out(repository: Path, revision: str, folder: Path) -> Iterator[Tree]:
    """A detached worktree of `revision` at `folder`, which must not exist; removed at the end.

    Submodules are checked out too where the repository's own copy of them has the commit; without
    it their folders stay empty. Raises `BaselineError` for an unknown revision and `RunError` if
    git cannot check it out.
    """
    commit = commit_of(repository, revision)
    added: list[tuple[Path, Path]] = []
    try:
        _add(repository, commit, folder, added)
        yield Tree(folder, revision, commit, _tree_of(repository, commit))
    finally:
        with _uninterrupted():
            for owner, place in reversed(added):
                _remove(owner, place)


def _add(repository: Path, commit: str, folder: Path, added: list[tuple[Path, Path]]) -> None:
    added.append((repository, folder))  # before: an interrupted checkout is removed too
    done = _git(repository, "worktree", "add", "--detach", "--", str(folder), commit, check=False)
    if done.returncode:
        said = _last_line(done.stderr)
        raise RunError(f"{repository}: {commit[:10]} cannot be checked out: {said}")
    for entry in _entries(_git(folder, "ls-tree", "-r", "-z", "HEAD").stdout):
        head, _, name = entry.partition(b"\t")
        mode, _, inner = head.decode().split()
        own = repository / os.fsdecode(name)
        if mode == "160000" and (own / ".git").exists():
            known = _git(own, "cat-file", "-e", f"{inner}^{{commit}}", check=False)
            if not known.returncode:
                _add(own, inner, folder / os.fsdecode(name), added)


def _remove(repository: Path, folder: Path) -> None:
    """Forget a worktree; never raises, because something else may be on its way out."""
    command = ("worktree", "remove", "--force", "--force", "--", str(folder))
    with contextlib.suppress(OSError, BaselineError):
        if _git(repository, *command, check=False).returncode:
            # Interrupted while it was checked out: git takes a folder that is gone more easily.
            shutil.rmtree(folder, ignore_errors=True)
            _git(repository, *command, check=False)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C, or the SIGTERM behind it, must not leave a worktree behind."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals do not come here
        return
    before: dict[signal.Signals, Any] = {}
    for one in (signal.SIGINT, signal.SIGTERM):
        before[one] = signal.signal(one, signal.SIG_IGN)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)


def _tree_of(repository: Path, commit: str) -> str:
    return _git(repository, "rev-parse", f"{commit}^{{tree}}").stdout.decode().strip()


def _entries(output: bytes) -> list[bytes]:
    return [entry for entry in output.split(b"\0") if entry]


def _content(path: Path) -> bytes:
    """Enough of a file that git does not know to notice a change."""
    try:
        about = path.lstat()
    except OSError:
        return b"gone"
    return f"{about.st_size} {about.st_mtime_ns}".encode()


def environment() -> dict[str, str]:
    """The environment of this process, without what ties git to one repository (set in hooks)."""
    return {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}


def _git(folder: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    # No hook of the repository may run, and no index of the working tree be refreshed.
    command = ("git", "-c", "core.hooksPath=/dev/null", "--no-optional-locks", *arguments)
    variables = environment() | {"LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True,
            check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise BaselineError("git is not installed, so there is no base to compare with") from None
    if check and done.returncode:
        said = _last_line(done.stderr)
        raise RunError(f"{folder}: git {arguments[0]} failed: {said}")
    return done


def _last_line(text: bytes) -> str:
    return (text.decode(errors="replace").strip().splitlines() or ["no word why"])[-1]
