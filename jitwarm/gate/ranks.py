"""Ranks in words, for what is the same at many of them: `every rank`, `rank 3`, `ranks 0-2, 5`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")

EVERY = "every rank"
_SPAN = re.compile(r"(\d+)(?:-(\d+))?")
# A file with `ranks 0-999999999` is refused before it is written out.
_MOST_RANKS = 1 << 16


def ranks_text(ranks: Iterable[int], planned: Collection[int] = ()) -> str:
    """`ranks 0-2, 5`; `every rank` if these are all that were planned."""
    ordered = sorted(set(ranks))
    if ordered == sorted(planned):
        return EVERY
    spans: list[list[int]] = []
    for rank in ordered:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
    return f"rank{'s' * (len(ordered) > 1)} {text}"


def ranks_of(text: str, planned: Collection[int] = ()) -> tuple[int, ...]:
    """The ranks that `ranks_text` has written. Raises `ValueError`."""
    if text == EVERY and planned:
        return tuple(sorted(planned))
    word, _, spans = text.partition(" ")
    ranks: list[int] = []
    for part in spans.split(", "):
        found = _SPAN.fullmatch(part)
        if word not in ("rank", "ranks") or not found:
            raise ValueError(f"{text!r} names no ranks: expected 'ranks 0-2, 5'")
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < _MOST_RANKS:
            raise ValueError(f"{text!r} names no ranks: {part} is no span")
        ranks += range(first, last + 1)
    if ranks_text(ranks) != text or (planned and not set(ranks) <= set(planned)):
        raise ValueError(f"{text!r} is not how planned ranks are named")
    return tuple(ranks)


def by_ranks(values: Mapping[int, T], planned: Collection[int] = ()) -> dict[str, T]:
    """Each different value once, under the ranks that have it; ordered by their first rank."""
    groups: list[tuple[T, list[int]]] = []
    for rank, value in sorted(values.items()):
        for known, ranks in groups:
            if known == value:
                ranks.append(rank)
                break
        else:
            groups.append((value, [rank]))
    return {ranks_text(ranks, planned): value for value, ranks in groups}
