"""What one Triton compile needs: names and values, no tensors, nothing that cannot be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jitwarm import keys


@dataclass(frozen=True, slots=True)
class TritonRecipe:
    """One launch of one kernel, reduced to what Triton's binder looks at.

    `kernel` is the import path of the JITFunction; `arguments` are its arguments by name in kernel
    order, tensors as `TensorSpec`; `options` are launch options such as `num_warps` in the order in
    which the launch writes them (the order is part of Triton's in-process key, not of its binary).
    """

    backend: ClassVar[str] = "triton"

    kernel: str
    arguments: tuple[tuple[str, object], ...]
    options: tuple[tuple[str, object], ...] = ()

    def canonical(self) -> str:
        """Text of the launch as declared: arguments and options as written."""
        inner = ", ".join(
            f"{name}={keys.canonical(value)}" for name, value in self.arguments + self.options
        )
        return f"{self.kernel}({inner})"
