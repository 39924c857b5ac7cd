"""What one call of flash-attn-4 needs: names and values, no tensors, nothing that cannot be
pickled.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

from jitwarm import keys
from jitwarm.backends import backend_of
from jitwarm.errors import UsageError

FORWARD = "flash_attn.cute.interface._flash_attn_fwd"


@dataclass(frozen=True, slots=True)
class Callback:
    """A function that the kernel traces (a score modifier), by its import path `module:name`.

    The name may be that of a function without arguments that returns it (`make`), so that a module
    can be imported where the library is not installed.
    """

    path: str
    make: bool = False

    def resolve(self) -> Any:
        """The function. Raises `UsageError` if there is none at that path."""
        module, _, name = self.path.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise UsageError(f"no function to trace at {self.path}: {error}") from error
        return found() if self.make else found

    def canonical(self) -> str:
        """The path."""
        return self.path


@dataclass(frozen=True, slots=True)
class FA4Recipe:
    """One call of a forward entry of the library, reduced to what decides its binaries.

    `arguments` are the entry's arguments by name: tensors as `TensorSpec` (their `init` is used
    where a scratch launch needs real ones), lists of them as tuples, functions as `Callback`.
    `entry` is the import path of the entry.
    """

    backend: ClassVar[str] = "fa4"
    arguments: tuple[tuple[str, object], ...]
    entry: str = FORWARD

    def canonical(self) -> str:
        """Text of the call as declared."""
        inner = ", ".join(f"{name}={keys.canonical(value)}" for name, value in self.arguments)
        return f"{self.entry}({inner})"

    @property
    def options(self) -> tuple[str, ...]:
        """The small kernels that this call needs beside its main one, as canonical keys.

        Two recipes of one main binary may differ in them (the combine kernel of split KV depends on
        the number of splits), so warm-up has to run both.
        """
        backend: Any = backend_of(self)
        helpers: tuple[str, ...] = backend.helpers(self)
        return helpers
