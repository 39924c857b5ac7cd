"""Integers of a kernel that an annotation keeps from being widened."""

from __future__ import annotations

import re
from typing import Any

_INTEGER = re.compile(r"[iu](8|16|32|64)")


def widths_of(function: Any) -> dict[str, str]:
    """The annotated integer types of a JITFunction's arguments: `i32`, `u8`; none of no kernel."""
    return {
        parameter.name: parameter.annotation_type
        for parameter in getattr(function, "params", ())
        if _INTEGER.fullmatch(getattr(parameter, "annotation_type", None) or "")
    }


def holds(width: str, value: Any) -> bool:
    """Whether a type holds a whole number; what is none is nothing to it."""
    if type(value) is not int:
        return True
    bits = int(width[1:])
    least = 0 if width.startswith("u") else -(1 << (bits - 1))
    return least <= value < least + (1 << bits)
