"""Slices of prefill chunks: the envelopes against every batch that a small step can have."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from jitwarm.contract import triton_scalar_specialization_rep as cls
from jitwarm.proof.envelope import Ints
from jitwarm.zoo.envelopes.indexer_slices import slices
from jitwarm.zoo.steps.limits import Limits
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES, prefill_chunks
from jitwarm.zoo.steps.slice_bounds import slice_classes


def splits(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to give `total` to so many parts, each 1 or more."""
    for cuts in itertools.combinations(range(1, total), parts - 1):
        ends = (0, *cuts, total)
        yield tuple(end - start for start, end in itertools.pairwise(ends))


def by_brute_force(limits: Limits, ratio: int, max_scores: int) -> set[tuple[int, int, int]]:
    """(rows in front, start, stop) of each slice of a chunk with a key, of every batch."""
    found = set()
    for decodes in range(limits.rows):
        for prefills in range(1, limits.rows - decodes + 1):
            for tokens in range(prefills, limits.tokens - decodes * limits.query_len + 1):
                for lens in splits(tokens, prefills):
                    totals = [range(length, limits.longest + 1) for length in lens]
                    for seq_lens in itertools.product(*totals):
                        states = [length // ratio for length in seq_lens]
                        for chunk in prefill_chunks(lens, states, max_scores):
                            if sum(chunk.seq_lens):
                                behind = decodes + chunk.first
                                found |= {(behind, *bounds) for bounds in chunk.slices}
    return found


def by_envelopes(limits: Limits, ratio: int, max_scores: int) -> set[tuple[int, int, int]]:
    """The same, as the envelopes say."""
    found = set()
    for kind in slices(limits, ratio=ratio, max_scores=max_scores):
        domains = [
            range(d.low, d.high + 1) if isinstance(d, Ints) else d.values
            for d in kind.parameters.values()
        ]
        for values in itertools.product(*domains):
            point = dict(zip(kind.parameters, values, strict=True))
            if kind.where(**point):
                behind = point.pop("behind")
                start, stop = kind.bounds(**point)
                if kind.start is not None and kind.stop is not None:
                    for form, bound in ((kind.start, start), (kind.stop, stop)):
                        factors = form.coefficients
                        assert sum(factors[n] * point[n] for n in form.names) + form.base == bound
                found.add((behind, start, stop))
    return found


@pytest.mark.parametrize("ratio", [1, 2, 4])
@pytest.mark.parametrize("longest", [3, 4, 5, 7])
@pytest.mark.parametrize("beyond", [0, 1, 4, 9, 40])
@pytest.mark.parametrize("query_len", [1, 3])
def test_envelopes_have_every_slice_and_no_other(
    ratio: int, longest: int, beyond: int, query_len: int
) -> None:
    limits = Limits(rows=3, tokens=8, longest=longest, query_len=query_len)
    scores = longest + beyond
    assert by_envelopes(limits, ratio, scores) == by_brute_force(limits, ratio, scores)


@pytest.mark.parametrize(("ratio", "longest", "scores"), [(1, 20, 20), (1, 20, 45), (4, 40, 40)])
@pytest.mark.parametrize("query_len", [1, 4])
def test_classes_are_those_of_every_slice(
    ratio: int, longest: int, scores: int, query_len: int
) -> None:
    """Up to two requests of 18 tokens, so that 16 divides some of the bounds."""
    limits = Limits(rows=2, tokens=18, longest=longest, query_len=query_len)
    found = by_brute_force(limits, ratio, scores)
    for behind in (0, 1):
        expected = {(cls(start), cls(stop)) for front, start, stop in found if front == behind}
        declared = slice_classes(limits, aligned=behind == 0, ratio=ratio, max_scores=scores)
        assert {(cls(start), cls(stop)) for start, stop in declared} == expected
        assert len(declared) == len(expected)


@pytest.mark.parametrize(
    ("longest", "ratio", "expected"),
    [
        # A context of 16,385 tokens is the first that slices 8,192 queries: 8,191 fit beside it.
        (163_840, 1, [(0, 1), (0, 2), (0, 16), (819, 820), (819, 832)]),
        (16_384, 1, [(0, 1), (0, 2), (0, 16)]),
        (131_072, 4, [(0, 1), (0, 2), (0, 16), (4097, 4098), (4097, 4112)]),
        (131_072, 128, [(0, 1), (0, 2), (0, 16)]),
        (127, 128, []),
    ],
)
def test_classes_of_engines(longest: int, ratio: int, expected: list[tuple[int, int]]) -> None:
    expected.sort(key=lambda bounds: (cls(bounds[0]), cls(bounds[1])))
    limits = Limits(256, 8192, longest)
    for aligned in (True, False):
        found = slice_classes(limits, aligned=aligned, ratio=ratio, max_scores=MAX_SCORES)
        assert found == expected


@pytest.mark.parametrize("length", [16_384, 16_385])
def test_where_slicing_begins(length: int) -> None:
    (chunk,) = prefill_chunks((8192,), (length,))
    assert chunk.slices == (((0, 8192),) if length == 16_384 else ((0, 8191), (8191, 8192)))
