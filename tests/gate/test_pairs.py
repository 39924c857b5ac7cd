"""The order of runs, and who hears of them."""

from __future__ import annotations

import pytest

from jitwarm.errors import SideFailed
from jitwarm.gate.key_changes import key_changes, key_text, unsteady_keys
from jitwarm.gate.pairs import Pairs, collect, first_runs, order
from scripted_times import sample


class Counting:
    """Says which run it was by its seconds: base 1, 2, ... and head 101, 102, ..."""

    def __init__(self, fail_at=None):
        self.asked, self.fail_at = [], fail_at

    def sample(self, side, index):
        if index == self.fail_at:
            raise SideFailed(side, "out of memory")
        self.asked.append((side, index))
        return sample(float(index + 10 + 100 * (side == "head")))


def test_abba():
    assert order(4) == ["base", "head", "head", "base", "base", "head", "head", "base"]
    for pairs in (2, 8, 14):
        # A drift that is steady adds as much to one side as to the other.
        places = {side: sum(i for i, s in enumerate(order(pairs)) if s == side)
                  for side in ("base", "head")}  # fmt: skip
        assert places["base"] == places["head"]


def test_runs_are_paired_in_the_order_they_are_made():
    sampler, heard = Counting(), []
    first = first_runs(sampler)
    pairs = collect(sampler, first, 2, lambda n, b, h: heard.append((n, b.cpu_s, h.cpu_s)))
    assert sampler.asked == [
        ("base", -2), ("head", -1), ("base", 0), ("head", 1), ("head", 2), ("base", 3),
    ]  # fmt: skip
    assert [s.cpu_s for s in pairs.base] == [10.0, 13.0]
    assert [s.cpu_s for s in pairs.head] == [111.0, 112.0]
    assert heard == [(1, 10.0, 111.0), (2, 13.0, 112.0)]
    assert [s.cpu_s for s in pairs.all("head")] == [109.0, 111.0, 112.0]


def test_a_side_that_fails_ends_it():
    sampler = Counting(fail_at=2)
    with pytest.raises(SideFailed, match="head: out of memory"):
        collect(sampler, first_runs(sampler), 4, lambda *_: None)
    assert sampler.asked[-1] == ("head", 1)


@pytest.mark.parametrize(
    ("base", "head", "text"),
    [
        ({"K": "ab"}, {"K": "ab"}, ""),
        ({"K": "ab"}, {"K": "abcdef"}, "4 more keys: K 2 + 4"),
        ({"K": "ab"}, {"K": "a"}, "1 fewer key: K 2 - 1"),
        ({"K": "ab"}, {"K": "ac"}, "1 key exchanged: K 2 + 1 - 1"),
        ({"K": "ab", "L": "x"}, {"K": "abc"}, "1 key exchanged: K 2 + 1, L 1 - 1"),
        ({"L": "x"}, {"K": "abc"}, "2 more keys: K 0 + 3, L 1 - 1"),
    ],
)
def test_keys_in_words(base, head, text):
    sides = (sample(keys={k: tuple(v) for k, v in side.items()}) for side in (base, head))
    assert key_text(key_changes(*sides)) == text


def test_keys_that_differ_between_two_runs_of_a_side():
    other = sample(keys={"K": ("a", "c")})
    pairs = Pairs(sample(), sample(), (sample(), sample()), (sample(), other))
    assert unsteady_keys(pairs) == ["head: K 2 + 1 - 1 in another run"]
    assert unsteady_keys(Pairs(sample(), other, (sample(),), (other,))) == []
