"""What a compile key has to be, and its text."""

from __future__ import annotations

import dataclasses
from typing import Any

from jitwarm import keys
from jitwarm.errors import DeclarationError


def check_key_type(kernel: str, kind: Any) -> None:
    """A key must be a value: frozen, hashable, and compared by what it holds."""
    if not isinstance(kind, type):
        raise DeclarationError(f"{kernel}: CompileKey is a {type(kind).__name__}, not a class")
    settings: Any = getattr(kind, "__dataclass_params__", None)
    if settings is not None and not settings.frozen:
        raise DeclarationError(
            f"{kernel}: CompileKey is not frozen: declare it with @dataclass(frozen=True)"
        )
    if kind.__hash__ is None:
        raise DeclarationError(
            f"{kernel}: CompileKey is not hashable: declare it with @dataclass(frozen=True)"
        )
    by_identity: Any = object.__hash__
    if not dataclasses.is_dataclass(kind) and kind.__hash__ is by_identity:
        raise DeclarationError(
            f"{kernel}: CompileKey is compared by identity: declare it with @dataclass(frozen=True)"
        )


def key_fields(key: Any) -> tuple[str, ...]:
    """The field names of a dataclass or named tuple; none for any other value."""
    if dataclasses.is_dataclass(key):
        return tuple(field.name for field in dataclasses.fields(key))
    return tuple(getattr(key, "_fields", ()))


def key_text(kernel: str, key: Any) -> str:
    """The canonical text of a key with the kernel's name: `Scale(block=256, stride_class=16)`."""
    fields = key_fields(key)
    if not fields:
        return f"{kernel}({keys.canonical(key)})"
    inner = ", ".join(f"{name}={keys.canonical(getattr(key, name))}" for name in fields)
    return f"{kernel}({inner})"
