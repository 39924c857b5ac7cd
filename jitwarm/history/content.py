"""The bytes of a stored file, or one line that says why there are none."""

from __future__ import annotations

from pathlib import Path

from jitwarm.errors import StoredFileError


def content(path: Path, what: str) -> bytes:
    """Everything in `path`; `what` names such a file. Raises `StoredFileError`."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise StoredFileError(path, f"there is no such {what}") from None
    except OSError as error:
        raise StoredFileError(path, f"cannot be read: {error.strerror}") from error
