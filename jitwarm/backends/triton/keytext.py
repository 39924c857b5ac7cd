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
from jitwarm.backends.triton.naming import import_path, is_function
from jitwarm.errors import KeyValueError

_INTEGERS = frozenset(f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64))
_UNSET = object()
_defaults: dict[tuple[Any, ...], dict[str, Any]] = {}


def key_text(
    fn: Any,
    specialization: Iterable[Any],
    options: Any,
    backend: Any,
    target: Any,
    *,
    strict: bool = True,
) -> str:
    """The canonical text of one launch.

    `specialization` is the binder's list of (type, class) pairs in parameter order, `options` the
    parsed options of the backend. A compile-time value that is compared by identity raises
    `KeyValueError`, or is shown by `keys.placeholder` if not `strict`: watching must not break a
    launch.
    """
    entries = list(specialization)
    arguments = "; ".join(
        f"{param.name}:{_argument(kind, cls, strict)}"
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
        if path in attrs:
            return "D" if any("divisibility" in str(name) for name, _ in attrs[path]) else ""
        # An annotated integer of value 1 is specialised, and has no attribute that says so.
        is_one = kind in _INTEGERS and not fn.params[path[0]].do_not_specialize
        return 1 if is_one else None

    return [
        (signature[param.name], classes(signature[param.name], (i,)))
        for i, param in enumerate(fn.params)
    ]


def parse_key(text: str) -> tuple[str, dict[str, str]]:
    """A backend key's kernel path and its fields, arguments and options alike (`target` names the
    architecture).

    A kernel may have an argument called like an option (`num_stages: tl.constexpr` is read by
    both): then the option's field is `{num_stages}`.
    """
    kernel, fields, settings = split_key(text)
    for name, value in settings.items():
        fields[f"{{{name}}}" if name in fields else name] = value
    return kernel, fields


def split_key(text: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """A backend key's kernel path, its arguments, and its settings: `target` and the options."""
    kernel, _, rest = text.partition("[")
    arguments, settings = (*_split(rest, "]{", 1), "}")[:2]
    fields = dict(_field(part, ":") for part in _split(arguments, "; "))
    target, *options = _split(settings[:-1], "; ") or [""]
    return kernel, fields, {"target": target, **dict(_field(part, "=") for part in options)}


def _field(text: str, separator: str) -> tuple[str, str]:
    name, _, value = text.partition(separator)
    return name, value


def _argument(kind: Any, cls: Any, strict: bool) -> str:
    if isinstance(kind, tuple):
        classes = cls or (None,) * len(kind)
        inner = (_argument(k, c, strict) for k, c in zip(kind, classes, strict=True))
        return f"({', '.join(inner)})"
    if kind == "constexpr":
        return f"constexpr={_value(cls, strict)}"
    if cls is None:
        return str(kind)
    return f"{kind}/{cls}"


def _value(value: Any, strict: bool) -> str:
    if is_function(value):  # known by its path
        return import_path(value)
    if type(value) is tuple:
        items = [_value(item, strict) for item in value]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if type(value).__name__ == "constexpr":
        return f"constexpr({_value(value.value, strict)})"
    try:
        return keys.canonical(value)
    except KeyValueError:
        if strict:
            raise
        return keys.placeholder(value)


def _changed_options(options: Any, backend: Any, target: Any) -> list[str]:
    where = (target.backend, target.arch, type(backend))
    defaults = _defaults.get(where)
    if defaults is None:
        defaults = _defaults[where] = dict(vars(backend.parse_options({})))
    changed = {
        name: value
        for name, value in sorted(vars(options).items())
        # By type too: Triton's disk hash tells launch_pdl=0 and launch_pdl=False apart.
        if (type(value), value) != (type(defaults.get(name)), defaults.get(name, _UNSET))
    }
    if "extern_libs" in changed:  # names and absolute paths: the folder is no part of the key
        changed["extern_libs"] = tuple(
            (lib, Path(path).name) for lib, path in changed["extern_libs"]
        )
    return [f"{name}={keys.canonical(value)}" for name, value in changed.items()]


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    """Split outside quotes, at most `most` times: a string constant may hold anything."""
    parts, start, quote, skip = [], 0, "", False
    for index, char in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == separator[0] and text.startswith(separator, index) and most:
            parts.append(text[start:index])
            start = index + len(separator)
            most -= 1
    if text[start:]:
        parts.append(text[start:])
    return parts
