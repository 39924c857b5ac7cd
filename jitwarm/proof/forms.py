"""Forms: how the value of a launch argument follows from the parameters of an envelope.

A compiler looks at few things of a value: whether it is 1, whether 16 divides it, whether it fits
32 bits; of a pointer whether 16 divides its address. For the forms here these classes repeat with
period 16 in every parameter, inside each power-of-two bucket, so a few values of each parameter
stand for all. Anything else (a minimum, a quotient, a product of two parameters) has no form: such
an envelope is walked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from jitwarm.errors import DeclarationError

Columns = Mapping[str, "NDArray[np.int64]"]


@dataclass(frozen=True, slots=True)
class Affine:
    """`base` plus each parameter times its coefficient, whole numbers."""

    base: int = 0
    coefficients: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it depends on."""
        return tuple(name for name, factor in self.coefficients.items() if factor)

    def at(self, columns: Columns) -> NDArray[np.int64]:
        """Its values at points that are given as one int64 array [points] a parameter."""
        first = next(iter(columns.values()), np.zeros(1, np.int64))
        total: Any = np.full(len(first), self.base, first.dtype)
        for name in self.names:
            total = total + self.coefficients[name] * columns[name]
        return cast("NDArray[np.int64]", total)


@dataclass(frozen=True, slots=True)
class NextPowerOfTwo:
    """The smallest power of two that is at least `of` (1 for anything below 2)."""

    of: Affine

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it depends on."""
        return self.of.names

    def at(self, columns: Columns) -> NDArray[np.int64]:
        """Its values, as `Affine.at`."""
        # Doubled in whole numbers: the logarithm of a float is wrong beside large powers.
        value = self.of.at(columns)
        found = np.ones_like(value)
        while (short := found < value).any():
            found[short] *= 2
        return found


@dataclass(frozen=True, slots=True)
class Pointer:
    """A view into a buffer that 16 bytes align: `offset` in bytes, `length` in elements.

    An empty view is aligned at any offset, because its address is the null pointer.
    """

    offset: Affine
    length: Affine

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it depends on."""
        return tuple(dict.fromkeys((*self.offset.names, *self.length.names)))

    def at(self, columns: Columns) -> NDArray[np.int64]:
        """1 where the pointer is aligned to 16 bytes, 0 where it is not."""
        aligned: Any = (self.offset.at(columns) % 16 == 0) | (self.length.at(columns) == 0)
        return cast("NDArray[np.int64]", aligned.astype(np.int64))


Form = Affine | NextPowerOfTwo | Pointer


def affine(base: int = 0, /, **coefficients: int) -> Affine:
    """`affine(3, n=4)` is 3 + 4 n. Raises `DeclarationError` for anything but whole numbers."""
    for name, value in {"base": base, **coefficients}.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise DeclarationError(f"affine(...): {name} is {value!r}, expected a whole number")
    return Affine(base, coefficients)


def next_power_of_two(of: Affine) -> NextPowerOfTwo:
    """The next power of two of an affine value, as block sizes are chosen."""
    return NextPowerOfTwo(of)


def pointer(*, offset: Affine, length: Affine) -> Pointer:
    """A view `buffer[offset : offset + length]`: `offset` in bytes, `length` in elements."""
    return Pointer(offset, length)
