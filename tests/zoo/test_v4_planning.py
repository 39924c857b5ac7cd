"""How a DeepSeek-V4 step is cut: gather chunks, indexer chunks, places of images, options."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitwarm.config import (
    EngineConfig,
    HFConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
)
from jitwarm.errors import ScenarioError
from jitwarm.traffic import Batch
from jitwarm.zoo.models.options import OfType, model_options
from jitwarm.zoo.steps.deepseek_v4_buffers import V4Buffers
from jitwarm.zoo.steps.gather_plan import GatherChunk, gather_plan, workspace_rows
from jitwarm.zoo.steps.image_spans import visible_counts
from jitwarm.zoo.steps.prefill_chunks import most_keys, prefill_chunks
from jitwarm.zoo.steps.step_buffers import IndexerChunks

requests = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 5000)), min_size=1, max_size=23)


def test_a_workspace_is_for_four_requests_of_the_largest_kind():
    assert workspace_rows(4, 128, 1_048_576, 8192) == 4 * (262_144 + 128 + 8192)
    assert workspace_rows(128, 128, 1_048_576, 8192) == 4 * (8192 + 128 + 8192)
    assert workspace_rows(1, 128, 1_048_576, 8192) == 4 * (128 + 8192)


def test_groups_of_four_share_a_chunk_as_long_as_they_fit():
    # The second group's longest request has 1000 // 4 states and gathers 10 + 127 rows.
    new, total = [10] * 9, [10] * 4 + [10, 1000, 10, 10] + [50]
    one = list(gather_plan(new, total, ratio=4, window=128, rows=9 * (250 + 137)))
    assert one == [GatherChunk(0, 9, 0, 90, 250, 250 + 137)]
    two = list(gather_plan(new, total, ratio=4, window=128, rows=9 * (250 + 137) - 1))
    assert two == [GatherChunk(0, 8, 0, 80, 250, 387), GatherChunk(8, 9, 80, 90, 12, 12 + 50)]
    # A layer that compresses nothing gathers windows alone.
    (flat,) = gather_plan(new, total, ratio=1, window=128, rows=9 * 137)
    assert flat == GatherChunk(0, 9, 0, 90, 0, 137)


@given(requests, st.sampled_from([1, 4, 128]), st.integers(0, 40_000))
def test_chunks_are_whole_groups_and_fit(lengths, ratio, spare):
    new = [n for n, _ in lengths]
    total = [n + context for n, context in lengths]
    rows = workspace_rows(ratio, 128, max(total), max(new)) + spare
    chunks = list(gather_plan(new, total, ratio=ratio, window=128, rows=rows))
    assert [c.first for c in chunks] == [0, *(c.last for c in chunks[:-1])]
    assert [c.start for c in chunks] == [0, *(c.stop for c in chunks[:-1])]
    assert (chunks[-1].last, chunks[-1].stop) == (len(new), sum(new))
    for chunk, following in zip(chunks, [*chunks[1:], None], strict=True):
        assert chunk.first % 4 == 0
        assert chunk.stop - chunk.start == sum(new[chunk.first : chunk.last])
        assert (chunk.last - chunk.first) * chunk.slots <= rows
        own = range(chunk.first, chunk.last)
        assert chunk.states == max(total[i] // ratio if ratio > 1 else 0 for i in own)
        assert chunk.slots - chunk.states == max(new[i] + min(total[i] - new[i], 127) for i in own)
        if following is not None:  # greedy: the next group did not fit
            more = range(chunk.first, min(chunk.last + 4, len(new)))
            states = max(total[i] // ratio if ratio > 1 else 0 for i in more)
            window = max(new[i] + min(total[i] - new[i], 127) for i in more)
            assert len(more) * (states + window) > rows


@given(requests, st.integers(1, 10**6))
def test_indexer_chunks_hold_no_more_keys_than_the_bound(lengths, max_scores):
    new, keys = [n for n, _ in lengths], [k for _, k in lengths]
    chunks = list(prefill_chunks(new, keys, max_scores))
    bound = most_keys(max(keys), max_scores)
    for chunk in chunks:
        assert sum(chunk.seq_lens) <= bound
        assert chunk.slices[0][0] == 0
        assert chunk.slices[-1][1] == sum(chunk.query_lens)
        for start, stop in chunk.slices:
            assert stop == start + 1 or (stop - start) * sum(chunk.seq_lens) <= max_scores
    assert sum(len(c.query_lens) for c in chunks) == len(new)


def config(**parallel):
    return EngineConfig(
        ModelConfig(max_model_len=4096, hf_config=HFConfig(compress_ratios=(4, 128))),
        ParallelConfig(**parallel),
        scheduler_config=SchedulerConfig(8, 512),
    )


def test_indexer_chunks_count_states():
    import torch

    chunks = IndexerChunks(config(), "cpu", 4)
    batch = Batch((7, 9), (5, 3, 40), (0, 0, 100))
    seq_lens = torch.arange(8, dtype=torch.int32)
    (chunk,) = chunks.fill(batch, seq_lens)
    assert chunk.query_start_loc.tolist() == [0, 5, 8, 48]
    assert chunk.cu_seq_lens.tolist() == [0, 1, 1, 36]  # 5 // 4, 3 // 4, 140 // 4
    assert (chunk.total, chunk.context, chunk.row_starts) == (36, 36, None)
    assert chunk.seq_lens.tolist() == [2, 3, 4]
    assert chunk.cu_seq_lens.data_ptr() % 16 == chunk.query_start_loc.data_ptr() % 16 == 0
    # One rank alone passes the configured interleave on; several take turns of whole states.
    alone = IndexerChunks(config(cp_kv_cache_interleave_size=128), "cpu", 4)
    assert alone.interleave == 128


def test_ranks_share_states_in_turns():
    import torch

    batch = Batch((), (40, 3), (1000, 0))
    local = []
    for rank in range(4):
        parallel = {"decode_context_parallel_size": 4, "dcp_rank": rank}
        chunks = IndexerChunks(config(**parallel, cp_kv_cache_interleave_size=128), "cpu", 4)
        assert chunks.interleave == 32
        (chunk,) = chunks.fill(batch, torch.zeros(8, dtype=torch.int32))
        assert chunk.cu_seq_lens.tolist() == [0, 260, 260]
        local.append(chunk.row_starts.tolist())
    # 260 states: two full rounds of 4 * 32, then 4 more for rank 0.
    assert local == [[0, 68, 68], [0, 64, 64], [0, 64, 64], [0, 64, 64]]


def test_images_lie_in_the_middle_of_even_prefills():
    batch = Batch((5,), (7, 16, 17, 4000), (0, 9, 0, 0))
    before, behind = visible_counts(batch, 1024)
    assert before.shape == behind.shape == (1 + 7 + 16 + 17 + 4000,)
    first = 8 + 4  # of 16 new tokens the 4th to the 11th
    assert before[first : first + 8].tolist() == list(range(8))
    assert behind[first : first + 8].tolist() == list(range(7, -1, -1))
    large = 41 + 1000
    assert before[large + 1023] == behind[large] == 1023
    inside = {*range(first, first + 8), *range(large, large + 1024)}
    for place in range(len(before)):
        if place not in inside:
            assert before[place] == behind[place] == 0
    assert visible_counts(Batch((5,), (7, 15, 17), (0, 0, 0)), 1024) is None
    assert visible_counts(Batch((5,), (), ()), 1024) is None


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=9), st.integers(1, 2000))
def test_an_image_stays_inside_its_prefill(chunks, most):
    batch = Batch((9,) * 3, tuple(chunks), (0,) * len(chunks))
    counts = visible_counts(batch, most)
    if counts is None:
        assert all(n < 16 or n % 2 for n in chunks)
        return
    start = 3
    assert not counts[:, :start].any()
    for n in chunks:
        before, behind = counts[:, start : start + n]
        place = range(n)
        assert all(0 <= b <= p for b, p in zip(before, place, strict=True))
        assert all(0 <= b < n - p for b, p in zip(behind, place, strict=True))
        assert (before + behind).max(initial=0) < max(most, 1)
        start += n


@pytest.mark.parametrize(
    ("states", "width"),
    [(0, 128), (1, 128), (128, 128), (129, 256), (4096, 4096), (4097, 8192), (8192, 8192)],
)
def test_the_bucket_of_an_all_states_selection(states, width):
    assert buffers(1_048_576).active_width(states) == width


def test_the_last_bucket_is_that_of_the_longest_context():
    longest = buffers(163_840)  # 1,280 states
    assert [longest.active_width(n) for n in (1024, 1025, 1280)] == [1024, 1280, 1280]
    assert longest.combined.shape == (4 * 1408,)  # 4 tokens
    assert buffers(163_840, images=1000).combined.shape == (4 * 2432,)  # 2,408 to whole 128s


def buffers(max_model_len, images=0):
    model = HFConfig(
        compress_ratios=(4, 128, 0),
        sliding_window=128,
        index_topk=8,
        index_n_heads=1,
        index_head_dim=16,
        vision_max_n_token=images,
    )
    sizes = SchedulerConfig(2, 4)
    return V4Buffers(
        EngineConfig(ModelConfig(max_model_len=max_model_len, hf_config=model),
                     scheduler_config=sizes), "cpu", 1,
    )  # fmt: skip


def test_options_take_defaults_and_refuse_what_they_do_not_know():
    rules = {"vision": (False, True), "heads": OfType(int, 64), "mode": ("a", "b")}

    def asked(*pairs):
        return model_options(
            dataclasses.replace(EngineConfig(), options=pairs), rules, model="some-model"
        )

    assert asked() == {"vision": False, "heads": 64, "mode": "a"}
    assert asked(("heads", 3), ("vision", True)) == {"vision": True, "heads": 3, "mode": "a"}
    for pair, text in (
        (("vison", True), "$.options.vison: unknown option: expected one of vision, heads, mode"),
        (("vision", 1), "$.options.vision: expected one of false, true, got 1"),
        (("heads", True), "$.options.heads: expected a value of type int, got true"),
        (("mode", "c"), '$.options.mode: expected one of "a", "b", got "c"'),
    ):
        with pytest.raises(ScenarioError) as error:
            asked(pair)
        assert str(error.value) == f"model some-model: {text}"
    with pytest.raises(ScenarioError, match="unknown option: expected one of none"):
        model_options(
            dataclasses.replace(EngineConfig(), options=(("x", 1),)), {}, model="some-model"
        )
