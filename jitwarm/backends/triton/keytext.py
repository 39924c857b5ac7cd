"""The canonical text of a Triton backend key, from what Triton's own binder says of a launch.

    jitwarm.zoo.kernels.x._kernel[x_ptr:*fp32/D; n:i32/; stride:i32; BLOCK:constexpr=256]{cuda:90;
    num_warps=8}

An argument is `name:type/class`: `D` divisible by 16, empty "specialised, and not divisible", no
slash at all "not specialised" (the last two are different binaries); a compile-time value is
`constexpr=value`. Options are those that differ from the backend's own defaults, so the text is the
same in Triton 3.6 to 3.9, whose option sets differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jitwarm import keys
from jitwarm.backends.triton.naming import import_path

_defaults: dict[tuple[Any, ...], dict[str, Any]] = {}


def key_text(
    fn: Any, specialization: Iterable[Any], options: Any, backend: Any, target: Any
) -> str:
    """The canonical text of one launch.

    `specialization` is the binder's list of (type, class) pairs in parameter order, `options` the
    parsed options of the backend.
    """
    entries = list(specialization)
    arguments = "; ".join(
        f"{param.name}:{_argument(kind, cls)}"
        for param, (kind, cls) in zip(fn.params, entries[: len(fn.params)], strict=True)
    )
    settings = [f"{target.backend}:{target.arch}", *_changed_options(options, backend, target)]
    # Triton 3.9 appends the name of a custom pass pipeline behind the arguments.
    settings += [f"pipeline={extra}" for extra in entries[len(fn.params) :]]
    return f"{import_path(fn)}[{arguments}]{{{'; '.join(settings)}}}"


def specialization_from_compile(
    fn: Any, signature: Mapping[str, Any], constexprs: Mapping[Any, Any], attrs: Mapping[Any, Any]
) -> list[tuple[Any, Any]]:
    """The (type, class) pairs behind the arguments of a compile that did not come through the
    binder (`preload`).
    """

    def classes(kind: Any, path: tuple[int, ...]) -> Any:
        if isinstance(kind, tuple):
            return tuple(classes(item, (*path, index)) for index, item in enumerate(kind))
        if kind == "constexpr":
            return constexprs.get(path)
        if path not in attrs:
            return None
        return "D" if any("divisibility" in str(name) for name, _ in attrs[path]) else ""

    return [
        (signature[param.name], classes(signature[param.name], (i,)))
        for i, param in enumerate(fn.params)
    ]


def parse_key(text: str) -> tuple[str, dict[str, str]]:
    """A backend key's kernel path and its fields, arguments and options alike (`target` names the
    architecture).
    """
    kernel, _, rest = text.partition("[")
    arguments, _, settings = rest.rpartition("]{")
    fields: dict[str, str] = {}
    for part in _split(arguments):
        name, _, value = part.partition(":")
        fields[name] = value
    target, *options = _split(settings[:-1])
    fields["target"] = target
    for part in options:
        name, _, value = part.partition("=")
        fields[name] = value
    return kernel, fields


def _argument(kind: Any, cls: Any) -> str:
    if isinstance(kind, tuple):
        inner = ", ".join(
            _argument(k, c) for k, c in zip(kind, cls or (None,) * len(kind), strict=True)
        )
        return f"({inner})"
    if kind == "constexpr":
        return f"constexpr={_value(cls)}"
    if cls is None:
        return str(kind)
    return f"{kind}/{cls}"


def _value(value: Any) -> str:
    if hasattr(value, "cache_key") and hasattr(
        value, "fn"
    ):  # a JITFunction passed as a compile-time value
        return import_path(value)
    return keys.canonical(value)


def _changed_options(options: Any, backend: Any, target: Any) -> list[str]:
    where = (target.backend, target.arch, type(backend))
    defaults = _defaults.get(where)
    if defaults is None:
        defaults = _defaults[where] = dict(vars(backend.parse_options({})))
    unset = object()
    changed = {
        name: value
        for name, value in sorted(vars(options).items())
        if value != defaults.get(name, unset)
    }
    if (
        "extern_libs" in changed
    ):  # pairs of a name and an absolute path: the folder is no part of it
        changed["extern_libs"] = tuple(
            (lib, Path(path).name) for lib, path in changed["extern_libs"]
        )
    return [f"{name}={keys.canonical(value)}" for name, value in changed.items()]


def _split(text: str) -> list[str]:
    """Split at `; `, but not inside quotes: a string constant may hold anything."""
    parts, start, quote, skip = [], 0, "", False
    for index, char in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == ";" and text[index + 1 : index + 2] == " ":
            parts.append(text[start:index])
            start = index + 2
    if text[start:]:
        parts.append(text[start:])
    return parts
