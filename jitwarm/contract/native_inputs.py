"""Launch inputs of a native Triton kernel, with stand-ins for its pointers grouped by dtype."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from jitwarm.contract.binding import kernel_arguments
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import DeclarationError

_MEMORY_CALLS = frozenset({"load", "store"})

PointerGroups = Mapping[Any, str | Iterable[str]] | Iterable[tuple[Any, str | Iterable[str]]]


def triton_warmup_inputs(
    kernel: Any,
    *args: object,
    grid: object = (1,),
    pointer_dtypes: PointerGroups | None = None,
    **kwargs: object,
) -> dict[str, object]:
    """The inputs of one launch by name: `grid`, kernel arguments in kernel order, then options.

    `pointer_dtypes` says which pointer arguments have which dtype, as a mapping or as pairs of a
    dtype and names; each becomes an aligned one-element stand-in, and every pointer that is not
    given otherwise must be among them. Raises `DeclarationError` for too many positional values, a
    name given twice, a name in `pointer_dtypes` that is no argument or no pointer, and a pointer
    that is not covered.
    """
    label = str(getattr(kernel, "__name__", None) or type(kernel).__qualname__)
    names, _ = kernel_arguments(label, kernel)
    if len(args) > len(names):
        raise DeclarationError(f"{label}: {len(args)} positional values for {len(names)} arguments")
    given: dict[str, object] = dict(zip(names, args, strict=False))
    groups = _pointer_specs(label, pointer_dtypes)
    for name, value in (*kwargs.items(), *groups):
        if name in given:
            raise DeclarationError(f"{label}: argument {name!r} is given more than once")
        given[name] = value
    if pointer_dtypes is not None:
        _check_pointers(label, names, _pointer_names(kernel, names), dict(groups), given)
    ordered = [*(name for name in names if name in given), *(n for n in given if n not in names)]
    return {"grid": grid, **{name: given[name] for name in ordered}}


def _pointer_specs(label: str, groups: PointerGroups | None) -> list[tuple[str, TensorSpec]]:
    pairs = groups.items() if isinstance(groups, Mapping) else groups or ()
    specs: list[tuple[str, TensorSpec]] = []
    for dtype, members in pairs:
        for name in (members,) if isinstance(members, str) else members:
            if any(name == known for known, _ in specs):
                raise DeclarationError(f"{label}: argument {name!r} is given more than once")
            specs.append((name, TensorSpec(dtype)))
    return specs


def _check_pointers(
    label: str,
    names: tuple[str, ...],
    pointers: frozenset[str],
    grouped: Mapping[str, object],
    given: Mapping[str, object],
) -> None:
    for name in grouped:
        if name not in names:
            raise DeclarationError(
                f"{label}: pointer_dtypes names {name!r}, which is no argument of the kernel "
                f"(arguments: {', '.join(names)})"
            )
        if name not in pointers:
            raise DeclarationError(
                f"{label}: pointer_dtypes names {name!r}, which is not a pointer: its name does "
                "not end in _ptr and no load or store starts from it"
            )
    missing = [name for name in names if name in pointers and name not in given]
    if missing:
        raise DeclarationError(
            f"{label}: pointer_dtypes does not cover {', '.join(map(repr, missing))}; "
            "name every pointer or pass it as an argument"
        )


def _pointer_names(kernel: Any, names: tuple[str, ...]) -> frozenset[str]:
    """Arguments that end in `_ptr`, or from which the address of a load or store starts."""
    found = {name for name in names if name.endswith("_ptr")}
    function = kernel
    while function is not None and not inspect.isfunction(function):
        function = getattr(function, "fn", None) or getattr(function, "func", None)
    try:
        source = textwrap.dedent(inspect.getsource(function)) if function is not None else ""
    except OSError:  # no source, as in a REPL: the names alone must do
        source = ""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            address = node.args[0]
            while isinstance(address, ast.BinOp):
                address = address.left
            if node.func.attr in _MEMORY_CALLS and isinstance(address, ast.Name):
                found.add(address.id)
    return frozenset(found.intersection(names))
