"""Ranks in words, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitwarm.gate.ranks import EVERY, by_ranks, ranks_of, ranks_text


def test_texts():
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([0, 1, 2, 5]) == "ranks 0-2, 5"
    assert ranks_text([0, 1], [0, 1]) == EVERY
    assert ranks_text([1], [1]) == EVERY
    assert by_ranks({0: "a", 1: "b", 2: "a"}, [0, 1, 2]) == {"ranks 0, 2": "a", "rank 1": "b"}
    assert by_ranks({0: [], 1: []}, [0, 1]) == {EVERY: []}
    assert by_ranks({}) == {}


@given(st.frozensets(st.integers(0, 40), min_size=1), st.frozensets(st.integers(0, 40)))
def test_back(ranks, others):
    planned = ranks | others
    assert ranks_of(ranks_text(ranks, planned), planned) == tuple(sorted(ranks))
    assert ranks_of(ranks_text(ranks)) == tuple(sorted(ranks))


@pytest.mark.parametrize(
    "text",
    ["", "rank", "rank x", "ranks 2-1", "ranks 0-99999999", "rank 1, 2", "ranks 1-2,3", EVERY,
     "ranks 2, 1", "rank 01", "rank 1 ", "rank -1", "ranks 0-1-2"],
)  # fmt: skip
def test_what_names_no_ranks(text):
    with pytest.raises(ValueError, match=r"names no ranks|not how planned ranks are named"):
        ranks_of(text)


def test_a_rank_that_was_not_planned():
    with pytest.raises(ValueError, match="not how planned ranks are named"):
        ranks_of("rank 3", [0, 1])
