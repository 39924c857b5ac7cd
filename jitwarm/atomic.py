"""Write files whole or not at all: a temporary file beside the target, then an atomic rename."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whose folder is created.

    A reader sees the old file or the new one, never a part. A pipe or a device is written to.
    """
    if _is_no_file(path):
        path.write_bytes(data)
        return
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
