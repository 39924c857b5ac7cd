"""Which pointers of a launch are divisible by 16 bytes: a value that can be a field of a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jitwarm.declare.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class TritonPointerInputVariant:
    """The alignment of each named pointer, in order; the order is part of the value."""

    alignments: tuple[tuple[str, bool], ...]

    @classmethod
    def from_alignment(cls, **aligned: bool) -> TritonPointerInputVariant:
        """`from_alignment(x=True, out=False)`: x is divisible by 16 bytes, out is not."""
        return cls(tuple((name, bool(value)) for name, value in aligned.items()))

    def is_aligned(self, name: str) -> bool:
        """Whether this pointer is divisible by 16 bytes.

        Raises KeyError for a name that the variant does not hold.
        """
        for known, aligned in self.alignments:
            if known == name:
                return aligned
        raise KeyError(
            f"no pointer {name!r} in this variant; it holds "
            f"{', '.join(known for known, _ in self.alignments)}"
        )

    def pointer(self, name: str, dtype: Any, shape: tuple[int, ...] = (1,)) -> TensorSpec:
        """A tensor stand-in for this pointer."""
        return TensorSpec(dtype, aligned=self.is_aligned(name), shape=shape)
