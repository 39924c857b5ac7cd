"""Write files whole or not at all: a temporary file beside the target, then an atomic rename."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whose folder is created. A reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)  # mkstemp's 0600 would hide reports from a CI artifact step under another user
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
