"""UNREAD: arguments that split a kernel's binaries and that its source never reads."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from jitwarm.findings import Finding
from jitwarm.proof.found import Found


def unread_findings(name: str, founds: Sequence[Found]) -> Iterable[Finding]:
    """One for each such argument of each kernel function in `founds`."""
    functions = {id(f.reach.function): f for f in founds if f.reach.function is not None}
    for found in functions.values():
        for argument in unread_arguments(found.reach.function):
            yield Finding(
                "UNREAD",
                name,
                f"{name}: `{argument}` is never read by the kernel, and each of its classes is "
                "another binary",
                field=argument,
                advice=f"remove `{argument}`, or add it to do_not_specialize",
                site=found.envelope.site,
                owners=found.envelope.owners,
            )


def unread_arguments(function: Any) -> list[str]:
    """The specialised run-time arguments of a JITFunction that its body does not mention.

    Empty where there is no source to look at.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function.fn)))
    except (OSError, TypeError, SyntaxError):
        return []
    body = tree.body[0]
    if not isinstance(body, ast.FunctionDef):
        return []
    read = {
        node.id
        for statement in body.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
    }
    return [
        param.name
        for param in function.params
        if not param.is_constexpr and not param.do_not_specialize and param.name not in read
    ]
