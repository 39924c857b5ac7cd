"""Canonical text of values and keys.

One text form for everything that is compared, stored or shown: type-exact (`1`, `True` and `1.0`
differ), free of addresses, the same in every process and for every PYTHONHASHSEED. Its hash is the
id used in files.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import re
from collections.abc import Hashable, Iterator
from typing import Any, cast

from jitwarm.errors import KeyValueError

_PLAIN = (int, str, bytes, bool, type(None))
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def key_id(text: str) -> str:
    """The id of a canonical text: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def canonical(value: object) -> str:
    """The canonical text of a value.

    Handles None, bool, int, float, str, bytes, tuples, frozensets, enums, frozen dataclasses (also
    with lists in their fields, as Gluon's layouts have them), named tuples, types, numpy scalars,
    torch and Triton dtypes, and `tl.constexpr`. Raises `KeyValueError` for anything else: an object
    that is compared by identity has another text in every process.
    """
    kind = type(value)
    if kind in _PLAIN or kind is float:
        return repr(value)
    if isinstance(value, enum.Enum):
        # A combination of flags that has no name of its own is known by its value.
        return f"{kind.__qualname__}.{canonical(value.value) if value.name is None else value.name}"
    if isinstance(value, tuple):
        return _tuple_text(value)
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(canonical(item) for item in value)) + "}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    # Asked of the type: an object may claim to have every attribute, or raise when asked.
    if callable(getattr(kind, "canonical", None)):
        return str(cast("Any", value).canonical())
    if dataclasses.is_dataclass(value):
        return _dataclass_text(value)
    return _library_text(value)


def placeholder(value: object) -> str:
    """What stands in a key for a value that has no canonical text: its type, and eight digits of
    the hash of its `repr`, so that two values do not look like one.

    The type alone where the `repr` holds an address, which is another one in every process.
    """
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    try:
        text = repr(value)
    except Exception:  # a stranger's repr: watching must not break a launch
        return f"<{name}>"
    if str(id(value)) in text or _ADDRESS.search(text):
        return f"<{name}>"
    return f"<{name}#{key_id(text)[:8]}>"


def exact(value: object) -> Hashable:
    """A hashable stand-in for `value` that, unlike Python's `==`, keeps types apart.

    `exact(1) != exact(True) != exact(1.0)`, `exact(0.0) != exact(-0.0)` and `exact(nan) ==
    exact(nan)`. It tells apart what `canonical` tells apart and refuses what it refuses, and is
    much cheaper: it is used on each point of a search space.
    """
    kind: Any = type(value)
    form = _form(kind)
    if form == "plain":
        return (kind, value)
    if form == "fields":
        try:
            return (kind, *(_exact_item(item) for _, item in _fields(value)))
        except RecursionError:
            raise KeyValueError(_holds_itself(kind)) from None
    if form == "tuple":
        return (kind, *map(exact, cast("tuple[object, ...]", value)))
    if form == "frozenset":
        return (kind, frozenset(map(exact, cast("frozenset[object]", value))))
    return (kind, canonical(value))


def _exact_item(value: object) -> Hashable:
    """As `exact`, of what a dataclass holds: lists too."""
    return (list, *map(_exact_item, value)) if type(value) is list else exact(value)


@functools.cache
def _form(kind: Any) -> str:
    """How `exact` stands in for values of a type.

    `plain` are values whose own `==` is exact among their type; `text` is everything else.
    """
    if kind in _PLAIN or issubclass(kind, enum.Enum | type) or _is_dtype(kind):
        return "plain"
    if callable(getattr(kind, "canonical", None)):
        return "text"
    if dataclasses.is_dataclass(kind):
        _check_frozen(kind)
        return "fields"
    if issubclass(kind, tuple):
        return "tuple"
    return "frozenset" if kind is frozenset else "text"


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _fields(value: Any) -> Iterator[tuple[str, object]]:
    """The fields of a frozen dataclass by name."""
    kind: Any = type(value)
    for name in _field_names(kind):
        try:
            yield name, getattr(value, name)
        except AttributeError as error:  # `init=False`, and never set
            raise KeyValueError(
                f"{kind.__qualname__} in a key has no value in its field {name!r}: give it "
                "one in __post_init__"
            ) from error


def _check_frozen(kind: Any) -> None:
    if not kind.__dataclass_params__.frozen:
        raise KeyValueError(
            f"{kind.__qualname__} in a key is not frozen: declare it with @dataclass(frozen=True)"
        )


def _tuple_text(value: tuple[object, ...]) -> str:
    names = getattr(type(value), "_fields", None)
    if names is not None:
        inner = ", ".join(
            f"{name}={canonical(item)}" for name, item in zip(names, value, strict=True)
        )
        return f"{type(value).__qualname__}({inner})"
    inner = ", ".join(map(canonical, value))
    text = f"({inner},)" if len(value) == 1 else f"({inner})"
    return text if type(value) is tuple else f"{type(value).__qualname__}({text})"


def _dataclass_text(value: Any) -> str:
    kind: Any = type(value)
    _check_frozen(kind)
    try:
        inner = ", ".join(f"{name}={_item_text(item)}" for name, item in _fields(value))
    except RecursionError:
        raise KeyValueError(_holds_itself(kind)) from None
    return f"{kind.__qualname__}({inner})"


def _item_text(value: object) -> str:
    """As `canonical`, of what a dataclass holds: lists too."""
    return f"[{', '.join(map(_item_text, value))}]" if type(value) is list else canonical(value)


def _library_text(value: Any) -> str:
    """Text of the few library objects that are values: recognised by name, so that none of the
    libraries is imported.
    """
    kind = type(value)
    root = kind.__module__.partition(".")[0]
    if _is_dtype(kind):
        return f"tl.{value.name}" if root == "triton" else str(value)
    if kind.__name__ == "constexpr" and root == "triton":
        return f"constexpr({canonical(value.value)})"
    if root == "numpy" and any(base.__name__ == "generic" for base in kind.__mro__):
        item = value.item()
        if type(item) is not kind:  # long double has no Python twin
            # numpy 2 dropped the underscore from `bool_` and `str_`.
            return f"np.{kind.__name__.rstrip('_')}({canonical(item)})"
    if isinstance(value, int | float | str):  # a subclass: keep the type in the text
        base = next(b for b in (int, float, str) if isinstance(value, b))
        return f"{kind.__qualname__}({canonical(base(value))})"
    raise KeyValueError(_no_value(value))


def _is_dtype(kind: type) -> bool:
    return kind.__name__ == "dtype" and kind.__module__.partition(".")[0] in ("torch", "triton")


def _holds_itself(kind: type) -> str:
    return f"{kind.__qualname__} in a key holds itself, or is nested too deeply: flatten it"


def _no_value(value: object) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, list | set | dict | bytearray):
        return (
            f"a key holds a {type(value).__qualname__}, which can change: use a tuple, or, if each "
            "of its values is a case of its own, WarmupChoices(...)"
        )
    return (
        f"a key holds a {kind}, which is compared by identity: two processes would never agree on "
        "it; use a number, a string, a dtype, an enum, a tuple or a frozen dataclass of these"
    )
