"""Traffic: the same for a seed everywhere, within the limits, headline batches first."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitwarm.keys import canonical, key_id
from jitwarm.scenario import Case, Mix, Scheduler, Step, Traffic
from jitwarm.traffic import REPEATS, Batch, batches, replay


def case(scheduler=None, **traffic):
    return Case(
        schema=1,
        name="t",
        model="m",
        scheduler=scheduler or Scheduler(),
        traffic=Traffic(**traffic),
    )


def first(given, count):
    return list(itertools.islice(batches(given), count))


def test_the_first_two_hundred_batches_are_what_they_always_were():
    text = "\n".join(canonical(batch) for batch in first(case(), 200))
    assert key_id(text) == "0f7baa7f2883b8ec"


def test_traffic_does_not_depend_on_the_process(fresh_process):
    text = (
        "import itertools\n"
        "from jitwarm.keys import canonical, key_id\n"
        "from jitwarm.scenario import Case\n"
        "from jitwarm.traffic import batches\n"
        "stream = batches(Case(schema=1, name='t', model='m'))\n"
        "print(key_id('\\n'.join(map(canonical, itertools.islice(stream, 200)))))"
    )
    assert fresh_process(text, PYTHONHASHSEED="77") == "0f7baa7f2883b8ec\n"


def test_another_seed_is_other_traffic():
    assert first(case(seed=0), 20) != first(case(seed=1), 20)
    assert first(case(seed=1), 20) == first(case(seed=1), 20)


def test_explicit_steps_come_first():
    steps = (Step(decode_lens=(3, 4), padded=1), Step(prefill_chunks=(5, 6)))
    stream = first(case(step=steps), 5)
    assert stream[:2] == [Batch((3, 4), (), (), 1), Batch((), (5, 6), (0, 0))]
    assert stream[2:] == first(case(), 3)


small = st.integers(1, 40)
limits = st.builds(Scheduler, small, st.integers(1, 300), st.integers(1, 300))
weights = st.sampled_from([0.0, 0.5, 1.0])
mixes = st.builds(Mix, weights, weights, weights, weights).filter(
    lambda mix: mix.decode + mix.prefill + mix.mixed + mix.padded > 0
)


@settings(max_examples=150)
@given(limits, mixes, st.integers(0, 5))
def test_no_batch_exceeds_the_limits(scheduler, mix, seed):
    for batch in first(case(scheduler, mix=mix, seed=seed), 15):
        assert 1 <= len(batch.seq_lens) <= scheduler.max_num_seqs
        assert 1 <= batch.num_tokens <= scheduler.max_num_batched_tokens
        assert max(batch.seq_lens) <= scheduler.max_model_len
        assert min((*batch.decode_lens, *batch.prefill_chunks)) >= 1
        assert min((0, *batch.prefill_contexts)) == 0
        assert batch.padded >= 0
        assert not (batch.padded and batch.prefill_chunks)
        assert len(batch.prefill_chunks) == len(batch.prefill_contexts)


@pytest.mark.parametrize("kind", ["decode", "prefill", "mixed", "padded"])
def test_a_mix_of_one_kind_gives_that_kind(kind):
    mix = Mix(**dict.fromkeys(("decode", "prefill", "mixed", "padded"), 0.0) | {kind: 1.0})
    kinds = {batch.kind for batch in first(case(mix=mix), 60)}
    # A batch whose size is a captured one already needs no padding.
    assert kinds == ({"padded", "decode"} if kind == "padded" else {kind})


def test_the_numbers_of_a_batch():
    batch = Batch(decode_lens=(9, 3), prefill_chunks=(5, 1), prefill_contexts=(0, 7))
    assert (batch.kind, batch.num_decodes, batch.num_prefills, batch.num_tokens) == (
        "mixed",
        2,
        2,
        8,
    )
    assert batch.query_lens == (1, 1, 5, 1)
    assert batch.seq_lens == (9, 3, 5, 8)
    padded = Batch(decode_lens=(9,), prefill_chunks=(), prefill_contexts=(), padded=2)
    assert (padded.kind, padded.num_decodes, padded.num_tokens) == ("padded", 3, 3)
    assert (padded.query_lens, padded.seq_lens) == ((1, 1, 1), (9, 0, 0))


def test_a_replay_leads_with_the_headline_batches_and_their_repeats():
    found = replay(case(), 200)
    assert len(found.batches) == 200
    prefill, decode = found.batches[:2]
    assert (prefill.kind, decode.kind) == ("prefill", "decode")
    assert (found.first_prefill, found.first_decode) == (0, 1)
    assert found.later_prefill == tuple(range(2, 2 * REPEATS + 2, 2))
    assert found.later_decode == tuple(range(3, 2 * REPEATS + 2, 2))
    assert all(found.batches[index] == prefill for index in found.later_prefill)
    assert all(found.batches[index] == decode for index in found.later_decode)
    head = 2 * (1 + REPEATS)
    assert list(found.batches[head:]) == first(case(), 200 - head)
    stream = first(case(), 200)
    assert prefill == next(batch for batch in stream if batch.kind == "prefill")
    assert decode == next(batch for batch in stream if batch.kind == "decode")


def test_without_a_pure_prefill_a_mixed_batch_stands_in():
    found = replay(case(mix=Mix(decode=0.5, prefill=0, mixed=0.5, padded=0)), 40)
    assert found.batches[found.first_prefill].kind == "mixed"
    assert found.batches[found.first_decode].kind == "decode"


def test_traffic_of_one_kind_has_one_headline():
    found = replay(case(mix=Mix(decode=1, prefill=0, mixed=0, padded=0)), 40)
    assert (found.first_prefill, found.later_prefill) == (None, ())
    assert (found.first_decode, found.later_decode) == (0, tuple(range(1, 1 + REPEATS)))


@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_a_short_replay_is_cut_off(steps):
    found = replay(case(), steps)
    assert len(found.batches) == steps
    assert found.batches == replay(case(), 200).batches[:steps]
    assert found.first_prefill == 0
    assert found.first_decode == (1 if steps > 1 else None)
    indices = (*found.later_prefill, *found.later_decode)
    assert sorted(indices) == list(range(2, steps))
