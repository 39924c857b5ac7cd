"""Turn msgspec's validation errors into `ScenarioError`s that name the field, what was expected and
what was found.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Any, TypeVar, get_args

import msgspec

from jitwarm.errors import ScenarioError

T = TypeVar("T")
# Fields of a resolved case that come from the matrix, not from the file.
_RESOLVED = ("axes",)

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
        known = _fields(_kind_at(kind, below))
        near = difflib.get_close_matches(unknown["name"], known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known fields: {', '.join(known)}"
        return ScenarioError(source, f"{root}{below}.{unknown['name']}", f"unknown field; {hint}")
    problem = problem.replace("`", "")
    problem = problem[0].lower() + problem[1:]
    found = _found(value, below)
    if found is not None and problem.startswith("expected"):
        expected = problem.partition(", got ")[0]
        expected = expected.replace("object", "a table").replace("array", "a list")
        if ">=" not in expected:
            expected += _bound(_kind_at(kind, below))
        problem = f"{expected}, got {found}"
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


def _fields(kind: Any) -> list[str]:
    """The field names of a struct; those that a scenario file may not set are left out."""
    return [field.name for field in msgspec.structs.fields(kind) if field.name not in _RESOLVED]


def _kind_at(kind: Any, path: str) -> Any:
    """The type at a path below `kind`."""
    for step in _STEP.finditer(path):
        if step["name"] is None:
            kind = get_args(kind)[0]
        else:
            fields = msgspec.structs.fields(kind)
            kind = next(field.type for field in fields if field.name == step["name"])
    return kind


def _bound(kind: Any) -> str:
    """The lower bound of a number type as in ` >= 1`: msgspec names it only where the type fits."""
    metas = [meta for meta in get_args(kind)[1:] if isinstance(meta, msgspec.Meta)]
    return "".join(f" >= {meta.ge}" for meta in metas if meta.ge is not None)
