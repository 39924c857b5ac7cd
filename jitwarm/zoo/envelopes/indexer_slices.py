"""Slices of prefill chunks in terms of few whole numbers.

Chunks are cut by `steps/prefill_chunks`. The rows of a slice are a quotient of the bound on scores,
so a later slice starts at a multiple of a quotient: for each place in a chunk that is a form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jitwarm.proof.envelope import Domain, Ints, Values
from jitwarm.proof.forms import Affine, affine
from jitwarm.zoo.envelopes.limits import Limits
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES
from jitwarm.zoo.steps.slice_bounds import fewest_rows, is_one_slice, most_queries


@dataclass(frozen=True, slots=True)
class Slices:
    """One kind of slices: `bounds` gives start and stop at a point without `behind`, `start` and
    `stop` are their forms (None: the points are few and walked).

    Parameter `behind` is the number of rows of the batch in front of the chunk.
    """

    name: str
    parameters: Mapping[str, Domain]
    where: Callable[..., Any]
    bounds: Callable[..., tuple[int, int]]
    start: Affine | None
    stop: Affine | None

    def forms(self, **others: Any) -> Mapping[str, Any] | None:
        """`others`, if the slices have forms."""
        return None if self.start is None else others


def slices(limits: Limits, *, ratio: int = 1, max_scores: int = MAX_SCORES) -> Iterator[Slices]:
    """Every slice of a chunk that has a key; keys are states of `ratio` tokens."""
    if limits.longest < ratio:
        return
    yield _first(limits, ratio, max_scores)
    least = fewest_rows(limits.longest, ratio, max_scores)
    most = {
        rows: min(limits.tokens, queries)
        for rows in range(least, min(limits.tokens, max_scores + 1))
        if (queries := most_queries(rows, limits.longest, ratio, max_scores)) > rows
    }
    for place in range(1, limits.tokens // least + 1):
        own = {rows: queries for rows, queries in most.items() if place * rows < queries}
        if own:
            yield _later(place, own, limits)


def _first(limits: Limits, ratio: int, max_scores: int) -> Slices:
    """From the first query of a chunk to any other: all of them, or the rows that fit."""

    def where(behind: Any, stop: Any) -> Any:
        return is_one_slice(stop, behind, limits, ratio, max_scores)

    return Slices(
        "first",
        {"behind": Ints(0, limits.prefills - 1), "stop": Ints(1, limits.tokens)},
        where,
        lambda stop: (0, stop),
        affine(),
        affine(stop=1),
    )


def _later(place: int, most: Mapping[int, int], limits: Limits) -> Slices:
    """Slice number `place` (0 is the first) of a request that is cut into slices of some rows.

    `most` gives the most queries for each number of rows.
    """
    lengths = list(most)
    # Quotients that step over numbers are no range, and then there are few.
    dense = len(lengths) == lengths[-1] - lengths[0] + 1 and len(set(most.values())) == 1
    queries = next(iter(most.values()))

    def where(behind: Any, rows: Any, rest: Any) -> Any:
        stop = place * rows + rest
        end = queries if dense else most[rows]
        # Rows in front have one token or more: a request that is sliced shares no chunk.
        return (rest <= rows) & (behind + stop <= limits.tokens) & (stop <= end)

    return Slices(
        f"later, number {place}",
        {
            "behind": Ints(0, limits.prefills - 1),
            "rows": Ints(lengths[0], lengths[-1]) if dense else Values(*lengths),
            "rest": Ints(1, lengths[-1]),
        },
        where,
        lambda rows, rest: (place * rows, place * rows + rest),
        affine(rows=place) if dense else None,
        affine(rows=place, rest=1) if dense else None,
    )
