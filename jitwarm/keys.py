"""Canonical text of values and keys.

One text form for everything that is compared, stored or shown: type-exact (`1`, `True` and `1.0`
differ), free of addresses, the same in every process and for every PYTHONHASHSEED. Its hash is the
id used in files.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Hashable, Iterable
from typing import Any

from jitwarm.errors import KeyValueError

_PLAIN = (int, str, bytes, bool, type(None))


def key_id(text: str) -> str:
    """The id of a canonical text: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def canonical(value: object) -> str:
    """The canonical text of a value.

    Handles None, bool, int, float, str, bytes, tuples, frozensets, enums, frozen dataclasses, named
    tuples, types, numpy scalars, torch and Triton dtypes, and `tl.constexpr`. Raises
    `KeyValueError` for anything else: an object that is compared by identity has another text in
    every process.
    """
    kind = type(value)
    if kind in _PLAIN or kind is float:
        return repr(value)
    if isinstance(value, enum.Enum):
        return f"{kind.__qualname__}.{value.name}"
    if isinstance(value, tuple):
        return _tuple_text(value)
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(canonical(item) for item in value)) + "}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    own = getattr(value, "canonical", None)
    if callable(own):
        return str(own())
    if dataclasses.is_dataclass(value):
        return _dataclass_text(value)
    return _library_text(value)


def exact(value: object) -> Hashable:
    """A hashable stand-in for `value` that, unlike Python's `==`, keeps types apart.

    `exact(1) != exact(True) != exact(1.0)`, `exact(0.0) != exact(-0.0)` and `exact(nan) ==
    exact(nan)`. Much cheaper than `canonical`: it is used on each point of a search space.
    """
    kind = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if kind is float:
        return (kind, repr(value))
    if isinstance(value, tuple):
        return (kind, *map(exact, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (kind, *(exact(getattr(value, name)) for name in _field_names(value)))
    try:
        hash(value)
    except TypeError:
        raise KeyValueError(_no_value(value)) from None
    return (kind, value)


def _field_names(value: Any) -> Iterable[str]:
    names: Iterable[str] = type(value).__dataclass_fields__
    return names


def _tuple_text(value: tuple[object, ...]) -> str:
    names = getattr(value, "_fields", None)
    if names is not None:
        inner = ", ".join(
            f"{name}={canonical(item)}" for name, item in zip(names, value, strict=True)
        )
        return f"{type(value).__qualname__}({inner})"
    inner = ", ".join(map(canonical, value))
    return f"({inner},)" if len(value) == 1 else f"({inner})"


def _dataclass_text(value: Any) -> str:
    kind = type(value)
    if not kind.__dataclass_params__.frozen:
        raise KeyValueError(
            f"{kind.__qualname__} in a key is not frozen: declare it with @dataclass(frozen=True)"
        )
    inner = ", ".join(
        f"{f.name}={canonical(getattr(value, f.name))}" for f in dataclasses.fields(value)
    )
    return f"{kind.__qualname__}({inner})"


def _library_text(value: Any) -> str:
    """Text of the few library objects that are values: recognised by name, so that none of the
    libraries is imported.
    """
    kind = type(value)
    root = kind.__module__.partition(".")[0]
    if kind.__name__ == "dtype" and root in ("torch", "triton"):
        return f"tl.{value.name}" if root == "triton" else str(value)
    if kind.__name__ == "constexpr" and root == "triton":
        return f"constexpr({canonical(value.value)})"
    if root == "numpy" and hasattr(value, "item") and getattr(value, "shape", None) == ():
        return f"np.{kind.__name__}({canonical(value.item())})"
    if isinstance(value, int | float | str):  # a subclass: keep the type in the text
        base = next(b for b in (int, float, str) if isinstance(value, b))
        return f"{kind.__qualname__}({canonical(base(value))})"
    raise KeyValueError(_no_value(value))


def _no_value(value: object) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return (
        f"a key holds a {kind}, which is compared by identity: two processes would never agree on "
        "it; "
        "use a number, a string, a dtype, an enum, a tuple or a frozen dataclass of these"
    )
