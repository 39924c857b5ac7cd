"""Classes of values, as a compiler tells them apart, for many points at once.

An integer is 1, divisible by 16 or neither, times the type that holds it: i32, i64 or u64; a
pointer is aligned to 16 bytes or not; a compile-time value is itself. The classes here are never
coarser than Triton's: an argument that is not specialised, or not on its divisibility, has fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitwarm.proof.envelope import Ints
from jitwarm.proof.forms import Affine, Columns, Form, NextPowerOfTwo, Pointer

Codes = NDArray[np.int64]
INT_CLASSES = 7
OUTSIDE = INT_CLASSES  # an integer that no launch can pass


def int_class(value: int) -> int:
    """The class of one integer: 0 for 1, `OUTSIDE` for what no integer type of Triton holds."""
    return int(int_classes(np.array([value], object))[0])


def int_classes(values: NDArray[Any]) -> Codes:
    """The classes of integers, given as an array [n] of int64 or of Python's own integers."""
    wide = (values < -(2**31)) | (values > 2**31 - 1)
    width = wide.astype(np.int64)
    outside: NDArray[np.bool_] = np.zeros(len(values), np.bool_)
    if values.dtype == object:
        width += (values > 2**63 - 1).astype(np.int64)
        outside = ((values < -(2**63)) | (values > 2**64 - 1)).astype(np.bool_)
    found: Codes = 1 + 2 * width + (values % 16 == 0).astype(np.int64)
    found[(values == 1).astype(np.bool_)] = 0
    found[outside] = OUTSIDE
    return found


def bounds(form: Affine, parameters: Mapping[str, Any]) -> tuple[int, int]:
    """The least and the greatest value of an affine form over its parameters, `where` aside."""
    low = high = form.base
    for name in form.names:
        domain, factor = parameters[name], form.coefficients[name]
        assert isinstance(domain, Ints)
        ends = sorted((factor * domain.low, factor * domain.high))
        low, high = low + ends[0], high + ends[1]
    return low, high


def affines(form: Form) -> tuple[Affine, ...]:
    """The affine values in a form."""
    if isinstance(form, Affine):
        return (form,)
    return (form.of,) if isinstance(form, NextPowerOfTwo) else (form.offset, form.length)


@dataclass(frozen=True, slots=True)
class Coder:
    """Numbers the classes of one argument from 0 to `radix` - 1."""

    form: Form
    is_constant: bool
    least: int
    radix: int

    @classmethod
    def of(cls, form: Form, parameters: Mapping[str, Any], *, is_constant: bool) -> Coder:
        """For an argument with this form; `is_constant` says that it is a compile-time value."""
        if isinstance(form, Pointer):
            return cls(form, is_constant, 0, 2)
        low, high = bounds(affines(form)[0], parameters)
        if isinstance(form, NextPowerOfTwo):
            return cls(form, is_constant, 0, 80 if is_constant else INT_CLASSES + 1)
        if is_constant:
            return cls(form, is_constant, low, high - low + 1)
        return cls(form, is_constant, 0, INT_CLASSES + 1)

    def codes(self, columns: Columns) -> Codes:
        """The numbers of the classes at points given as one array [n] a parameter."""
        values = self.form.at(columns)
        if isinstance(self.form, Pointer):
            return values
        if not self.is_constant:
            return int_classes(values)
        if isinstance(self.form, NextPowerOfTwo):
            return np.rint(np.log2(values.astype(np.float64))).astype(np.int64)
        return values - self.least

    def agrees(self, columns: Columns, actual: Any) -> bool:
        """Whether a real launch at the one point of `columns` has the class that is predicted."""
        predicted = self.form.at(columns)[0]
        if isinstance(self.form, Pointer):
            # An optional tensor that is left out has no alignment; the keys say that it is absent.
            return actual is None or (
                hasattr(actual, "data_ptr") and (actual.data_ptr() % 16 == 0) == bool(predicted)
            )
        if type(actual) is not int:  # True is no integer to Triton
            return False
        if self.is_constant:
            return bool(predicted == actual)
        return int_class(int(predicted)) == int_class(actual)
