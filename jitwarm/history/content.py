"""The bytes of a stored file, or one line that says why there are none; and what values in one
cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jitwarm.errors import StoredFileError
from jitwarm.record import LARGEST

DEEPEST = 50
# Numbers that may be below 0: a step that is none, and differences of two times.
_SIGNED = ("first_step", "excess_ms", "excess_decode_ms")


def content(path: Path, what: str) -> bytes:
    """Everything in `path`; `what` names such a file. Raises `StoredFileError`."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise StoredFileError(path, f"there is no such {what}") from None
    except OSError as error:
        raise StoredFileError(path, f"cannot be read: {error.strerror}") from error


def is_folder(path: Path) -> bool:
    """Whether a folder is there. Raises `StoredFileError` where nobody can tell."""
    try:
        return path.is_dir()
    except OSError as error:  # a name too long, a folder on the way that is closed
        raise StoredFileError(path, f"cannot be read: {error.strerror}") from error


def check_depth(path: Path, what: str, value: Any) -> None:
    """Raise `StoredFileError` for what is nested so deeply that it is no record of anything."""
    for _ in _leaves(path, what, value):
        pass


def check_numbers(path: Path, what: str, record: dict[str, Any]) -> None:
    """`check_depth`, and raise it for a number that is no count, time or size too."""
    for name, value in _leaves(path, what, record):
        if isinstance(value, int | float) and not isinstance(value, bool):
            least = -LARGEST if name in _SIGNED else 0
            if not least <= value <= LARGEST:
                raise StoredFileError(path, f"is no {what}: {name} is {str(value)[:40]}")


def _leaves(path: Path, what: str, record: Any) -> Iterator[tuple[str, Any]]:
    """All values that hold no others, with the nearest name above them."""
    left: list[tuple[str, Any, int]] = [("", record, 0)]
    while left:
        name, value, depth = left.pop()
        if not isinstance(value, dict | list | tuple):
            yield name, value
            continue
        if depth == DEEPEST:
            raise StoredFileError(path, f"is no {what}: it is nested too deeply")
        inner = value.items() if isinstance(value, dict) else [(name, one) for one in value]
        left += [(str(key), one, depth + 1) for key, one in inner]
