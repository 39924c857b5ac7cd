"""Signatures: the classes of all arguments of whole points, as one number each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jitwarm.proof.classes import Coder, Codes
from jitwarm.proof.space import Space, Table


class Signatures:
    """The distinct classes of whole points, each with its first point."""

    def __init__(self, space: Space, coders: Mapping[str, Coder]) -> None:
        """Of points of `space`, whose arguments `coders` number by name; none yet."""
        self.space, self.coders = space, coders
        self.first: dict[int, Any] = {}

    def codes(self, table: Table) -> Codes:
        """One number a point, equal for points of one signature."""
        columns = self.space.integers(table)
        total: Any = np.zeros(len(table), np.int64)
        size = 1
        parts: list[tuple[Any, int]] = [
            (table[:, place].astype(np.int64), domain.size)
            for place, domain in enumerate(self.space.parameters.values())
            if not hasattr(domain, "low")
        ]
        parts += [(coder.codes(columns), coder.radix) for coder in self.coders.values()]
        for codes, radix in parts:
            size *= radix
            if size > 2**62 and total.dtype != object:
                total = total.astype(object)
            total = total * radix + codes
        return total  # type: ignore[no-any-return]

    def add(self, table: Table) -> int:
        """Take over the signatures of a table; returns how many were new."""
        before = len(self.first)
        distinct, places = np.unique(self.codes(table), return_index=True)
        for code, place in sorted(zip(distinct, places, strict=True), key=lambda pair: pair[1]):
            self.first.setdefault(int(code), table[place])
        return len(self.first) - before
