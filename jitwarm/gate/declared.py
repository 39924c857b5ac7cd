"""Declared keys taken apart: the text of a launch or of a `CompileKey`, by field."""

from __future__ import annotations

import functools
import re

_OPEN, _CLOSE = "([{", ")]}"
# The alignment of several pointers is one field of a key; each of them is a difference of its own.
_VARIANT = re.compile(r"TritonPointerInputVariant\(alignments=\((.*)\)\)")
_ALIGNMENT = re.compile(r"\('(\w+)', (True|False)\)")


@functools.lru_cache(maxsize=4096)
def declared_fields(text: str) -> dict[str, str]:
    """The values of a declared key by the names of its fields.

    What stands before the fields, the kernel's path or the class of the key, has the empty name.
    Of text that is no key everything does.
    """
    start = next((at for at, depth, end in _walk(text) if depth == 1 and not end), -1)
    if start < 0 or not text.endswith(")"):
        return {"": text}
    fields = {"": text[:start]}
    for number, part in enumerate(_split(text[start + 1 : -1])):
        name, equals, value = part.partition("=")
        if not (equals and name.isidentifier()):
            name, value = f"[{number}]", part
        pointers = _pointers(value)
        if pointers and not pointers.keys() & fields.keys():
            fields |= pointers
        else:
            fields[name] = value
    return fields


def _pointers(value: str) -> dict[str, str]:
    """`{"seq_lens": "unaligned"}` of a value that is the alignment of pointers."""
    variant = _VARIANT.fullmatch(value)
    if variant is None:
        return {}
    words = {"True": "aligned", "False": "unaligned"}
    return {name: words[value] for name, value in _ALIGNMENT.findall(variant[1])}


def _split(text: str) -> list[str]:
    """The parts between commas outside brackets and quotes."""
    parts, last = [], 0
    for at, depth, _ in _walk(text):
        if depth == 0 and text[at] == ",":
            parts.append(text[last:at].strip())
            last = at + 1
    rest = text[last:].strip()
    return [*parts, rest] if rest else parts


def _walk(text: str) -> list[tuple[int, int, bool]]:
    """The brackets and commas outside quotes: place, depth behind it, whether it closes."""
    found, depth, quote, at = [], 0, "", 0
    while at < len(text):
        char = text[at]
        if quote:
            at += char == "\\"  # and what it escapes
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _OPEN or char in _CLOSE:
            depth += 1 if char in _OPEN else -1
            found.append((at, depth, char in _CLOSE))
        elif char == ",":
            found.append((at, depth, False))
        at += 1
    return found
