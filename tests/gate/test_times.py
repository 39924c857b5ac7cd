"""What is said of the times of a case."""

from __future__ import annotations

from jitwarm.gate.pairs import Pairs
from jitwarm.gate.times import conclude_times
from scripted_times import sample

SIX_MORE = {"K": tuple("abcdefgh")}


def paired(base=2.0, head=2.0, pairs=14, spread=0.0, **head_changes):
    """Pairs whose ratio swings by `spread` to both sides."""
    swing = [1 + spread, 1 - spread] * pairs
    return Pairs(
        sample(base),
        sample(head, **head_changes),
        tuple(sample(base) for _ in range(pairs)),
        tuple(sample(head * swing[i], **head_changes) for i in range(pairs)),
    )


def said(pairs, effect=0.10):
    return conclude_times("s", "dcp=8", pairs, effect, "scenarios/s.toml", ("a remark",))


def test_slower_in_warm_up_with_more_keys():
    found = said(paired(head=2.3, warm_cpu_s=1.1, keys=SIX_MORE))
    assert (found.kind, found.code) == ("SLOWER", 1)
    assert found.line == (
        "s dcp=8: start-up takes 15.0% more processor time, 2.00 s to 2.30 s, +0.30 s of it in "
        "warm-up; 6 more keys: K 2 + 6"
    )
    assert found.advice == (
        "other keys take other time: jitwarm check scenarios/s.toml says whether they are expected"
    )
    assert found.details == (
        "seconds                     base      head  change",
        "processor time, judged     2.000     2.300  +15.0%",
        "  of it warm-up            0.800     1.100  +37.5%",
        "  of it the rest           1.200     1.200  +0.0%",
        "wall clock                 2.200     2.530  +15.0%",
        "  of it enumeration        0.050     0.050  +0.0%",
        "  of it warm-up            0.500     0.500  +0.0%",
        "keys                           2         8  +6",
        "14 pairs, one spreads by 0.0%; 98% interval of the change +15.0% to +15.0%",
        "a remark",
    )


def test_slower_elsewhere():
    found = said(paired(head=2.3))
    assert found.text == (
        "start-up takes 15.0% more processor time, 2.00 s to 2.30 s, +0.30 s of it in imports, "
        "the model and enumeration"
    )
    assert found.advice == ""


def test_slower_everywhere_names_no_place():
    found = said(paired(head=2.4, warm_cpu_s=1.0))
    assert found.text == "start-up takes 20.0% more processor time, 2.00 s to 2.40 s"


def test_faster_is_told_and_passes():
    found = said(paired(head=1.6, warm_cpu_s=0.4))
    assert (found.kind, found.code) == ("FASTER", 0)
    assert found.text == (
        "start-up takes 20.0% less processor time, 2.00 s to 1.60 s, -0.40 s of it in warm-up"
    )


def test_the_same_says_what_is_excluded():
    found = said(paired(spread=0.01))
    assert (found.kind, found.code) == ("SAME", 0)
    assert found.text == "as fast as base: +0.0% processor time (-1.0% to +1.0%, 14 pairs)"


def test_too_noisy_is_no_pass_and_says_how_many_pairs():
    found = said(paired(spread=0.2))
    assert (found.kind, found.code) == ("NOT-ENOUGH-SAMPLES", 4)
    assert found.text == (
        "14 pairs leave -20.0% to +20.0% open, so +10% is neither found nor excluded; about 326 "
        "pairs would find it with 90% power, a pair spreads by 30.1%"
    )
    assert found.advice == "again on a quieter machine, or with --pairs 326"


def test_more_pairs_than_compare_takes_are_no_advice():
    found = said(paired(spread=0.5))
    assert (found.kind, found.advice) == ("NOT-ENOUGH-SAMPLES", "again on a quieter machine")


def test_bad_luck_asks_for_more_pairs_than_there_were():
    # Little noise, but the true change lies at the edge of what was asked about.
    found = said(paired(head=2.0, spread=0.031), effect=0.03)
    assert found.kind == "NOT-ENOUGH-SAMPLES"
    few = said(paired(pairs=4))
    assert few.text == "4 pairs tell nothing: at least 8 are needed"
    assert few.advice == "again on a quieter machine, or with --pairs 8"


def test_a_side_whose_keys_change_from_run_to_run():
    pairs = paired()
    pairs = Pairs(pairs.first_base, pairs.first_head, pairs.base,
                  (*pairs.head[1:], sample(keys=SIX_MORE)))  # fmt: skip
    found = said(pairs)
    assert (found.kind, found.code) == ("NONDETERMINISTIC", 1)
    assert found.text == (
        "two runs of one side warm different keys, so times compare different work: head: K 2 + 6 "
        "in another run"
    )


def test_a_part_that_takes_no_time_is_a_difference_not_a_share():
    found = said(paired(warm_cpu_s=0.0))
    assert found.details[2] == "  of it warm-up            0.800     0.000  -0.800 s"
