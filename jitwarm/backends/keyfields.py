"""Backend keys taken apart, whichever backend wrote them.

Triton's have arguments with types:  `path[x_ptr:*fp32/D; BLOCK:constexpr=256]{cuda:90}`.
Others have fields of a declared key: `path[head_dim=128; causal=True]{sm_90a; --enable-tvm-ffi}`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jitwarm.backends.triton.keytext import split_key

# A string constant may hold anything.
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_TRITON_TARGET = re.compile(r"\]\{\w+:\w+")


@dataclass(frozen=True, slots=True)
class KeyFields:
    """A key's kernel path, its own fields and its settings (`target` and the options), by name.

    `is_triton` says that the fields are Triton's classes of arguments.
    """

    path: str
    fields: dict[str, str]
    settings: dict[str, str]
    is_triton: bool

    def together(self) -> dict[str, str]:
        """Fields and settings alike; a setting called like a field is `{name}`."""
        renamed = {
            f"{{{name}}}" if name in self.fields else name: value
            for name, value in self.settings.items()
        }
        return self.fields | renamed


def fields_of(text: str) -> KeyFields:
    """Take a key apart. Of text that is no key, everything is path."""
    masked = _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), text)
    if _TRITON_TARGET.search(masked):
        return KeyFields(*split_key(text), is_triton=True)
    start = masked.find("[")
    if start < 0:
        return KeyFields(text, {}, {}, is_triton=False)
    end = masked.rfind("]{")
    if end < 0:
        end = masked.rfind("]")
    target, *options = _parts(text, masked, end + 2, len(text.removesuffix("}"))) or [""]
    settings = {"target": target} | _named(options, "options")
    return KeyFields(
        text[:start], _named(_parts(text, masked, start + 1, end), "key"), settings, is_triton=False
    )


def _parts(text: str, masked: str, start: int, end: int) -> list[str]:
    """The parts of `text[start:end]` between semicolons outside quotes."""
    parts = []
    while start < end:
        cut = masked.find("; ", start, end)
        cut = end if cut < 0 else cut
        parts.append(text[start:cut])
        start = cut + 2
    return parts


def _named(parts: list[str], rest: str) -> dict[str, str]:
    """`name=value` by name; parts without a name together under the name `rest`."""
    named: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not (equals and name.isidentifier()):
            name, value = rest, f"{named[rest]}; {part}" if rest in named else part
        named[name] = value
    return named
