"""Read what jitwarm wrote earlier: whole and of a known schema, or one error that says why not.

A file that a killed process left half written, that another program wrote, or that a later jitwarm
wrote must never be taken for a small result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jitwarm.errors import StoredFileError

T = TypeVar("T")


class _Head(msgspec.Struct):
    schema: Any = None


def read(path: Path, kind: type[T], schema: int, what: str) -> T:
    """The file `path`, decoded as `kind`, whose field `schema` has to be `schema`.

    `what` names such a file ("result"). Raises `StoredFileError`.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise StoredFileError(path, f"there is no such {what}") from None
    except OSError as error:
        raise StoredFileError(path, f"cannot be read: {error.strerror}") from error
    return decode(path, data, kind, schema, what)


def decode(path: object, data: bytes, kind: type[T], schema: int, what: str) -> T:
    """`read`, for bytes that came from `path`."""
    if not data.strip():
        raise StoredFileError(path, f"is empty, and no {what} of jitwarm")
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.ValidationError:
        raise StoredFileError(path, f"is JSON, and no {what} of jitwarm") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoredFileError(path, f"is damaged or no JSON ({error})") from None
    if type(head.schema) is not int:
        raise StoredFileError(path, f"is no {what} of jitwarm: it has no schema number")
    if head.schema > schema:
        raise StoredFileError(
            path,
            f"is a {what} of schema {head.schema}, this jitwarm reads up to {schema}: install a "
            "later one",
        )
    if head.schema < schema:
        raise StoredFileError(
            path, f"is a {what} of schema {head.schema}, this jitwarm reads {schema}: write it anew"
        )
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise StoredFileError(path, f"is no {what} of jitwarm: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # In what the look for the schema number had skipped.
        raise StoredFileError(path, f"is damaged or no JSON ({error})") from None
