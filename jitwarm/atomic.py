"""Write files whole or not at all: a temporary file beside the target, then an atomic rename."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jitwarm.errors import NotWrittenError


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whose folder is created.

    A reader sees the old file or the new one, never a part. A pipe or a device is written to.
    Raises `NotWrittenError`.
    """
    try:
        if _is_no_file(path):
            path.write_bytes(data)
        else:
            _replace(path, data)
    except OSError as error:
        raise NotWrittenError(path, error) from error


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Have the folder, which is created, to ourselves: another process that asks for it waits.

    Files that belong together are written like this. Raises `NotWrittenError`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise NotWrittenError(folder, error) from error
    try:
        with contextlib.suppress(OSError):  # a file system that has no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # and the lock is gone, as it is when the process dies


def remove(folder: Path, *patterns: str) -> None:
    """Remove the files of a folder that match. Raises `NotWrittenError`."""
    for pattern in patterns:
        for path in folder.glob(pattern):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise NotWrittenError(path, error) from error


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp's 0600 would hide a report from a CI step that runs as another user.
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _is_no_file(path: Path) -> bool:
    """Whether a rename would put a file in the place of /dev/null, of a pipe, or of the link that
    /dev/stdout is: as root it does, and nothing on the machine works any more.
    """
    if path.is_symlink() and path.absolute().parent == Path("/dev"):
        return True
    return path.exists() and not path.is_file() and not path.is_dir()
