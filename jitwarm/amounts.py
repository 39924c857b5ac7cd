"""Amounts in words."""

from __future__ import annotations


def counted(amount: int, one: str, many: str = "") -> str:
    """`1 case`, `2 cases`."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"
