"""Turn msgspec's validation errors into `ScenarioError`s that name the field, what was expected and
what was found.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Any, TypeVar

import msgspec

from jitwarm.errors import ScenarioError

T = TypeVar("T")

_AT = re.compile(r" - at `(?P<path>[^`]+)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]+)`")
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]")


def convert(source: str, root: str, value: Any, kind: type[T]) -> T:
    """Convert plain data to `kind`.

    `root` is the path of `value` in `source`. Raises `ScenarioError`.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _translate(source, root, value, kind, str(error)) from None


def _translate(source: str, root: str, value: Any, kind: Any, message: str) -> ScenarioError:
    at = _AT.search(message)
    below = at["path"].removeprefix("$") if at else ""
    problem = _AT.sub("", message)
    unknown = _UNKNOWN.search(problem)
    if unknown:
        known = _fields(kind, below)
        near = difflib.get_close_matches(unknown["name"], known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known fields: {', '.join(known)}"
        return ScenarioError(source, f"{root}{below}.{unknown['name']}", f"unknown field; {hint}")
    problem = problem.replace("`", "")
    problem = problem[0].lower() + problem[1:]
    found = _found(value, below)
    if found is not None and problem.startswith("expected"):
        problem = f"{problem.partition(', got ')[0]}, got {found}"
    return ScenarioError(source, f"{root}{below}", problem)


def _found(value: Any, path: str) -> str | None:
    """The offending value as it would be written in the file."""
    for step in _STEP.finditer(path):
        try:
            value = value[step["name"]] if step["name"] is not None else value[int(step["index"])]
        except (KeyError, IndexError, TypeError):
            return None
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return json.dumps(value, default=str)


def _fields(kind: Any, path: str) -> list[str]:
    """The field names of the struct at a path below `kind`."""
    for step in _STEP.finditer(path):
        if step["name"] is None:
            kind = kind.__args__[0]
        else:
            kind = next(
                field.type for field in msgspec.structs.fields(kind) if field.name == step["name"]
            )
    return [field.name for field in msgspec.structs.fields(kind)]
