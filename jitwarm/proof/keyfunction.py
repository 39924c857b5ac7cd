"""Key functions: kernels of a compiler of one's own, known by the value that its cache is keyed
on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jitwarm import keys
from jitwarm.contract.keytype import key_fields
from jitwarm.errors import KeyValueError
from jitwarm.plan import PlanKey

BACKEND = "function"


@dataclass(frozen=True, slots=True, eq=False)
class KeyFunction:
    """A kernel whose cache key is what `key(**inputs)` returns.

    The key is a value: a number, a text, a tuple, a named tuple, a frozen dataclass of these.
    `program(**inputs)`, if there is one, gives the text of what would be built for the inputs: two
    texts under one key are a wrong program waiting to be served.
    """

    name: str
    key: Callable[..., Any]
    program: Callable[..., str] | None = None

    @property
    def kernel_name(self) -> str:
        """As other kernels call it."""
        return self.name

    def text(self, key: Any) -> str:
        """The canonical text of a key: `name[block=16; dtype='fp8']`.

        The fields of a tuple without names are `key0`, `key1`; any other value is `key`. Raises
        `KeyValueError`, which names the field, for one that is compared by identity.
        """
        texts = texts_of(self.name, self.fields(key))
        return f"{self.name}[{'; '.join(f'{field}={text}' for field, text in texts.items())}]"

    def fields(self, key: Any) -> dict[str, Any]:
        """The fields of a key by name."""
        if isinstance(key, type):
            return {"key": key}
        if type(key) is tuple:
            return {f"key{index}": value for index, value in enumerate(key)}
        return fields_of_key(key)

    def planned(self, values: Iterable[Any]) -> list[PlanKey]:
        """The keys that are built at start-up, as a plan of them."""
        texts = map(self.text, values)
        return [PlanKey(self.name, BACKEND, text, text) for text in dict.fromkeys(texts)]


def fields_of_key(key: Any) -> dict[str, Any]:
    """The fields of a dataclass or named tuple; any other value is the field `key`."""
    return {name: getattr(key, name) for name in key_fields(key)} or {"key": key}


def texts_of(name: str, fields: Mapping[str, Any]) -> dict[str, str]:
    """The canonical texts of the fields of a key of the kernel `name`.

    Raises `KeyValueError`, which names the field, for a value that is compared by identity.
    """
    texts = {}
    for field, value in fields.items():
        try:
            texts[field] = keys.canonical(value)
        except KeyValueError as error:
            raise KeyValueError(f"{name}: field {field!r} of its key: {error}") from error
    return texts
