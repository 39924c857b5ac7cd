"""Whether processes can share a cache folder: the file operations of a compile cache, by several
processes at once, and what went wrong with which.

A cache writes an entry into a folder of its own, moves it to its name, reads it back, and removes
the folder. On a local disk one of the writers wins and all read a whole entry. File systems of a
network may refuse to remove a folder in which a file is still open elsewhere, and may show a moved
file late, or never to a reader that looked before.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from jitwarm.findings import Finding
from jitwarm.forks import run_each

# Bytes of an entry: more than one page, so that a half-written one can be seen.
_LENGTH = 1 << 16
_LIMIT_S = 30.0
# What each operation is for, and what its failure means for a cache.
_ADVICE = {
    "remove_folder": "let the cache leave its temporary folders, or give each process a local one",
    "read": "read what was compiled from memory, or give each process a local folder",
}
_OTHER = "give each process a folder on a local disk, and copy finished entries"


class FolderStore:
    """A folder of entries; each method is one thing that a cache asks of its file system."""

    def __init__(self, folder: Path) -> None:
        """`folder` exists."""
        self.folder = folder

    def make_folder(self, name: str) -> None:
        """A folder of one writer."""
        (self.folder / name).mkdir()

    def write(self, name: str, data: bytes) -> None:
        """A new file."""
        (self.folder / name).write_bytes(data)

    def move(self, source: str, target: str) -> None:
        """Give an entry its name; another writer's entry of that name is replaced."""
        (self.folder / source).replace(self.folder / target)

    def read(self, name: str) -> bytes:
        """A whole entry. Raises OSError if it is not there."""
        return (self.folder / name).read_bytes()

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        (self.folder / name).rmdir()


class _Step(msgspec.Struct):
    """One operation of one process: what was wrong with it, if anything."""

    name: str
    problem: str = ""


class _Report(msgspec.Struct):
    steps: list[_Step]
    read: str = ""


def check_store(
    make: Callable[[Path], FolderStore], folder: Path, *, processes: int = 4
) -> list[Finding]:
    """Let `processes` use the store that `make(folder)` gives, all with one entry.

    One STORE-UNSAFE a kind of problem: `field` is the operation, `seen` what it met (`EBUSY`,
    `FileNotFoundError`, `2 entries`), `kernel` the kind of store. No finding where each operation
    of each process succeeded and one entry, whole, is read by all.
    """
    name = getattr(make, "__name__", type(make).__name__)
    writers = [lambda rank=rank: _write(make(folder), rank) for rank in range(processes)]
    readers = [lambda: _read(make(folder))] * processes
    reports: list[_Report] = []
    problems: dict[tuple[str, str], int] = {}
    winners: set[str] = set()
    for functions, ends in ((writers, False), (readers, True)):
        for ended in run_each(functions, at_once=processes, limit_s=_LIMIT_S):
            if ended.problem:
                problems.setdefault(("store", ended.problem), 1)
                continue
            report = msgspec.json.decode(ended.answer, type=_Report)
            reports.append(report)
            if ends:
                winners.add(report.read)
    for report in reports:
        for step in report.steps:
            if step.problem:
                problems[step.name, step.problem] = problems.get((step.name, step.problem), 0) + 1
    if len(winners - {""}) > 1:
        problems["move", f"{len(winners - {''})} entries"] = processes
    return [
        Finding(
            "STORE-UNSAFE",
            name,
            f"{name}: {step} failed in {count} of {processes} processes that share a cache: {seen}",
            field=step,
            seen=seen,
            advice=_ADVICE.get(step, _OTHER),
        )
        for (step, seen), count in sorted(problems.items())
    ]


def _write(store: FolderStore, rank: int) -> bytes:
    own = f"tmp.{rank}"
    report = _Report([])
    steps: list[tuple[str, Callable[[], object]]] = [
        ("make_folder", lambda: store.make_folder(own)),
        ("write", lambda: store.write(f"{own}/entry", _entry(rank))),
        ("move", lambda: store.move(f"{own}/entry", "entry")),
        ("remove_folder", lambda: store.remove_folder(own)),
        ("read", lambda: _whole(store.read("entry"))),
    ]
    for name, operation in steps:
        report.steps.append(_Step(name, _problem(operation)))
    return msgspec.json.encode(report)


def _read(store: FolderStore) -> bytes:
    report = _Report([])

    def read() -> None:
        report.read = _whole(store.read("entry"))

    report.steps.append(_Step("read", _problem(read)))
    return msgspec.json.encode(report)


def _entry(rank: int) -> bytes:
    return f"{rank};".encode().ljust(_LENGTH, b".")


def _whole(data: bytes) -> str:
    """Whose entry it is. Raises ValueError for one that nobody has written so."""
    rank = data.partition(b";")[0].decode()
    if not rank.isdigit() or data != _entry(int(rank)):
        raise ValueError("half an entry")
    return rank


def _problem(operation: Callable[[], object]) -> str:
    try:
        operation()
    except FileNotFoundError as error:
        return type(error).__name__
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error) or os.strerror(error.errno or 0))
    except Exception as error:  # whatever a store raises is what this is looking for
        return str(error) or type(error).__name__
    return ""
