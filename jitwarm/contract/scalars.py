"""Representatives of the classes in which Triton specialises an integer argument."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from jitwarm.errors import ScalarRangeError, WrongKindError


def triton_scalar_specialization_rep(value: SupportsIndex) -> int:
    """One integer that stands for every integer of `value`'s class.

    1 is a class of its own; the others are an integer type and whether 16 divides the value: int32
    gives 16 or 2, other int64 2**31 or 2**31 + 1, other uint64 2**63 or 2**63 + 1; 0 is divisible.
    Not for constexpr arguments, and for a do-not-specialise argument only the type matters. Raises
    `ScalarRangeError` (an OverflowError) outside -2**63 .. 2**64 - 1 and `WrongKindError` for a
    bool, which Triton types differently.
    """
    if isinstance(value, bool):
        raise WrongKindError(
            f"triton_scalar_specialization_rep({value}): a bool is no integer to Triton; pass it "
            "as it is"
        )
    number = operator.index(value)
    if number == 1:
        return 1
    odd = 1 if number % 16 else 0
    if -(2**31) <= number < 2**31:
        return 2 if odd else 16
    if -(2**63) <= number < 2**63:
        return 2**31 + odd
    if 0 <= number < 2**64:
        return 2**63 + odd
    raise ScalarRangeError(
        f"triton_scalar_specialization_rep({number}): outside -2**63 .. 2**64 - 1, no launch can "
        "pass it"
    )
