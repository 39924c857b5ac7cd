"""ConvertReqIndexToGlobalIndex against a plain reference: exact, every element of both outputs.

Where several programs share a row the order of a compacted row is unspecified: rows are then
compared sorted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_convert_req_index_to_global_index import Layout, Prefill
from references_convert_req_index_to_global_index import convert as reference

from jitwarm.errors import BindingError
from jitwarm.zoo.kernels import convert_req_index_entry_points as entry_points
from jitwarm.zoo.kernels.convert_req_index_to_global_index import tiling

Move = Callable[..., torch.Tensor]

WORLDS = [(w, rank) for w in (2, 4, 8) for rank in range(w)]
REQUESTS, WIDTH = 4, 5


def random_case(
    rng: np.random.Generator, queries: int, topk: int, layout: Layout, *, empty: float = 0.3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Request ids, a block table and token ids, some negative and some past the table."""
    end = WIDTH * layout.block_size * layout.world_size
    tokens = rng.integers(0, end + end // 8, (queries, topk)).astype(np.int32)
    gone = rng.random(tokens.shape) < empty
    tokens[gone] = rng.choice(np.array([-1, -2, -64, -(2**31)], np.int32), gone.sum())
    if queries > 1:
        tokens[1] = -1  # nothing selected
    table = rng.permutation(1000)[: REQUESTS * WIDTH].reshape(REQUESTS, WIDTH).astype(np.int32)
    return rng.integers(0, REQUESTS, queries).astype(np.int32), table, tokens


def random_prefill(rng: np.random.Generator, queries: int) -> Prefill:
    """Two prefill requests; about half of the rows are decode rows."""
    request = rng.integers(-2, 2, queries).astype(np.int32)
    return Prefill(request, np.array([7, 4096], np.int32), 100_000)


def assert_rows(tensor: torch.Tensor, expected: np.ndarray, *, ordered: bool) -> None:
    found = tensor.cpu().numpy()
    if not ordered:  # valid entries in any order, but in front
        counts = (expected >= 0).sum(axis=1)
        for row, count in zip(found, counts, strict=True):
            assert (row[:count] >= 0).all() and (row[count:] == -1).all()
        found, expected = np.sort(found, axis=1), np.sort(expected, axis=1)
    np.testing.assert_array_equal(found, expected)


def check_convert(
    case: Any,
    layout: Layout,
    to_device: Move,
    poison: Move,
    *,
    count: bool,
    mapping: np.ndarray | None = None,
    prefill: Prefill | None = None,
) -> None:
    req_id, table, tokens = case
    indices = to_device(tokens)
    out = poison(torch.empty_like(indices))
    counts = poison(torch.empty_like(indices[:, 0].contiguous())) if count else None
    result = entry_points.convert(
        to_device(req_id),
        to_device(table),
        indices,
        block_size=layout.block_size,
        block_stride_rows=layout.block_stride_rows,
        num_topk_tokens=tokens.shape[1],
        dcp_size=layout.world_size,
        dcp_rank=layout.rank,
        dcp_interleave=layout.interleave,
        idx_mapping=None if mapping is None else to_device(mapping),
        prefill_request_id=None if prefill is None else to_device(prefill.request),
        workspace_start=None if prefill is None else to_device(prefill.start),
        workspace_rank_stride=0 if prefill is None else prefill.rank_stride,
        out=out,
        valid_counts=counts,
        return_valid_counts=count,
    )
    expected, expected_counts = reference(
        req_id, table, tokens, layout, idx_mapping=mapping, prefill=prefill, compact=count
    )
    assert result == (out, counts) if count else result is out
    ordered = not count or tiling(tokens.shape[1], True)[2]
    assert_rows(out, expected, ordered=ordered)
    if counts is not None:
        np.testing.assert_array_equal(counts.cpu().numpy(), expected_counts)


def check_filter(
    case: Any, layout: Layout, to_device: Move, poison: Move, *, count: bool, compact: bool
) -> None:
    req_id, table, tokens = case
    indices = to_device(tokens)
    out = poison(torch.empty_like(indices))
    result = entry_points.filter_dcp(
        to_device(req_id),
        to_device(table),
        indices,
        dcp_size=layout.world_size,
        dcp_rank=layout.rank,
        dcp_interleave=layout.interleave,
        block_size=layout.block_size,
        block_stride_rows=layout.block_stride_rows,
        num_topk_tokens=tokens.shape[1],
        compact=compact,
        out=out,
        return_valid_counts=count,
    )
    compacted = count if layout.world_size == 1 else compact
    expected, expected_counts = reference(req_id, table, tokens, layout, compact=compacted)
    assert_rows(out, expected, ordered=not compacted or tiling(tokens.shape[1], True)[2])
    if count:
        assert result[0] is out
        np.testing.assert_array_equal(result[1].cpu().numpy(), expected_counts)
    else:
        assert result is out


def test_the_worked_example(to_device: Move) -> None:
    tokens = np.full((1, 128), -1, np.int32)
    tokens[0, :7] = [0, 63, 64, 127, 191, 255, -1]
    rows = entry_points.convert(
        to_device(np.zeros(1, np.int32)),
        to_device(np.array([[9, 2, 7, 1]], np.int32)),
        to_device(tokens),
        block_size=64,
        num_topk_tokens=128,
    )
    assert rows[0, :7].tolist() == [576, 639, 128, 191, 511, 127, -1]
    assert rows[0, 7:].eq(-1).all()


@pytest.mark.parametrize("queries", [0, 1, 15, 16, 17])
@pytest.mark.parametrize("count", [False, True])
def test_query_counts(
    rng: np.random.Generator, to_device: Move, poison: Move, queries: int, count: bool
) -> None:
    layout = Layout(block_size=16, block_stride_rows=16)
    check_convert(random_case(rng, queries, 128, layout), layout, to_device, poison, count=count)


@pytest.mark.parametrize("topk", [128, 256, 384, 640, 2048, 4224])
@pytest.mark.parametrize("count", [False, True])
def test_both_tilings(
    rng: np.random.Generator, to_device: Move, poison: Move, topk: int, count: bool
) -> None:
    """4224 columns are too many for one program and no power of two."""
    assert tiling(topk, count) == (
        {384: 512, 640: 1024}.get(topk, topk) if count and topk < 4224 else 128,
        8 if count and topk < 4224 else 4,
        count and topk < 4224,
    )
    layout = Layout()
    check_convert(random_case(rng, 3, topk, layout), layout, to_device, poison, count=count)


def test_long_rows_that_are_powers_of_two_are_one_tile() -> None:
    assert tiling(8192, True) == (8192, 8, True)
    assert tiling(8192, False) == tiling(8192 + 128, True) == (128, 4, False)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("interleave", [1, 4])
@pytest.mark.parametrize(
    ("count", "compact"), [(False, True), (True, True), (True, False), (False, False)]
)
def test_filter_on_every_rank(
    rng: np.random.Generator,
    to_device: Move,
    poison: Move,
    world: tuple[int, int],
    interleave: int,
    count: bool,
    compact: bool,
) -> None:
    layout = Layout(16, 24, *world, interleave)
    case = random_case(rng, 3, 128, layout)
    check_filter(case, layout, to_device, poison, count=count, compact=compact)


@pytest.mark.parametrize(
    ("count", "compact"), [(False, True), (True, True), (True, False), (False, False)]
)
def test_filter_of_shared_rows(
    rng: np.random.Generator, to_device: Move, poison: Move, count: bool, compact: bool
) -> None:
    layout = Layout(64, 64, 4, 1, 1)
    case = random_case(rng, 2, 4224, layout)
    check_filter(case, layout, to_device, poison, count=count, compact=compact)


@pytest.mark.parametrize(
    ("count", "compact"), [(False, True), (True, True), (True, False), (False, False)]
)
def test_one_rank_compacts_only_what_it_counts(
    rng: np.random.Generator, to_device: Move, poison: Move, count: bool, compact: bool
) -> None:
    layout = Layout(interleave=8)
    case = random_case(rng, 3, 128, layout)
    check_filter(case, layout, to_device, poison, count=count, compact=compact)


@pytest.mark.parametrize("world", [(1, 0), *WORLDS])
@pytest.mark.parametrize("count", [False, True])
def test_prefill_rows_use_the_gathered_workspace(
    rng: np.random.Generator, to_device: Move, poison: Move, world: tuple[int, int], count: bool
) -> None:
    layout = Layout(16, 20, *world, 2)
    prefill = random_prefill(rng, 8)
    case = random_case(rng, 8, 128, layout)
    check_convert(case, layout, to_device, poison, count=count, prefill=prefill)


@pytest.mark.parametrize("count", [False, True])
@pytest.mark.parametrize("with_prefill", [False, True])
def test_index_map(
    rng: np.random.Generator, to_device: Move, poison: Move, count: bool, with_prefill: bool
) -> None:
    layout = Layout()
    _, table, tokens = random_case(rng, 6, 256, layout)
    mapping = np.array([2, -1, 0, 3, -5, 1], np.int32)
    case = rng.integers(0, 6, 6).astype(np.int32), table, tokens
    prefill = random_prefill(rng, 6) if with_prefill else None
    check_convert(case, layout, to_device, poison, count=count, mapping=mapping, prefill=prefill)


def test_blocks_with_gaps_between_them(
    rng: np.random.Generator, to_device: Move, poison: Move
) -> None:
    layout = Layout(block_size=64, block_stride_rows=200)
    check_convert(random_case(rng, 4, 128, layout), layout, to_device, poison, count=True)


@pytest.mark.parametrize("valid", [0, 1, 15, 16, 17, 127, 128])
@pytest.mark.parametrize("count", [False, True])
def test_fewer_valid_than_columns(to_device: Move, poison: Move, valid: int, count: bool) -> None:
    layout = Layout()
    tokens = np.full((2, 128), -1, np.int32)
    tokens[0, 128 - valid :] = np.arange(valid)  # at the end: compacting has to move them
    tokens[1, ::2] = np.arange(64)
    table = np.array([[3, 1, 4, 1, 5]], np.int32)
    case = np.zeros(2, np.int32), table, tokens
    check_convert(case, layout, to_device, poison, count=count)


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [False, True])
def test_slices_at_any_offset(
    rng: np.random.Generator, at_offset: Move, poison: Move, offset: int, count: bool
) -> None:
    layout = Layout(16, 16)
    prefill = random_prefill(rng, 5)
    case = random_case(rng, 5, 128, layout)
    move = lambda values: at_offset(values, offset)
    check_convert(case, layout, move, poison, count=count, prefill=prefill)


@pytest.mark.parametrize("width", [1, 16, 17])
def test_a_table_wider_than_the_view_of_it(
    rng: np.random.Generator, to_device: Move, width: int
) -> None:
    """The row stride may exceed the used width; ids past the used width are invalid."""
    tokens = np.arange(-1, 127, dtype=np.int32)[None] * 8
    whole = rng.integers(0, 500, (3, 20)).astype(np.int32)
    rows = entry_points.convert(
        to_device(np.array([2], np.int32)),
        to_device(whole)[:, :width],
        to_device(tokens),
        block_size=16,
        num_topk_tokens=128,
    )
    expected, _ = reference(np.array([2]), whole[:, :width], tokens, Layout(16, 16))
    np.testing.assert_array_equal(rows.cpu().numpy(), expected)


def test_every_token_has_one_owner(rng: np.random.Generator, to_device: Move) -> None:
    layout = Layout(16, 16, 4, 0, 4)
    req_id, table, tokens = random_case(rng, 4, 256, layout)
    total = np.zeros(4, np.int64)
    for rank in range(4):
        _, counts = entry_points.filter_dcp(
            to_device(req_id),
            to_device(table),
            to_device(tokens),
            dcp_size=4,
            dcp_rank=rank,
            dcp_interleave=4,
            block_size=16,
            num_topk_tokens=256,
            return_valid_counts=True,
        )
        total += counts.cpu().numpy()
    np.testing.assert_array_equal(total, ((tokens >= 0) & (tokens < WIDTH * 64)).sum(axis=1))


def test_what_does_not_fit_is_refused(to_device: Move) -> None:
    req_id, tokens = np.zeros(2, np.int32), np.zeros((2, 128), np.int32)
    table = np.zeros((1, 4), np.int32)

    def call(
        req_id: np.ndarray = req_id,
        table: np.ndarray = table,
        tokens: np.ndarray = tokens,
        *,
        entry: Any = entry_points.convert,
        **more: Any,
    ) -> Any:
        given = {"block_size": 16, "num_topk_tokens": 128} | more
        return entry(to_device(req_id), to_device(table), to_device(tokens), **given)

    spread = {"entry": entry_points.filter_dcp, "dcp_size": 2, "dcp_rank": 0, "dcp_interleave": 1}
    for entry in ({}, spread):
        for bad in (
            {"req_id": req_id.astype(np.int64)},
            {"table": table.astype(np.int64)},
            {"tokens": tokens.astype(np.int64)},
            {"num_topk_tokens": 256},
            {"req_id": np.zeros(3, np.int32)},
            {"tokens": np.zeros((2, 100), np.int32), "num_topk_tokens": 100},
        ):
            with pytest.raises(BindingError, match="token_indices int32"):
                call(**entry, **bad)
        with pytest.raises(BindingError, match="out must be"):
            call(**entry, out=to_device(tokens)[:1])
        with pytest.raises(BindingError, match="valid_counts must be"):
            call(
                **entry,
                valid_counts=to_device(tokens.astype(np.int64))[:, 0],
                return_valid_counts=True,
            )
    with pytest.raises(BindingError, match="rank 2 of 2"):
        call(**spread | {"dcp_rank": 2})
    with pytest.raises(BindingError, match="divides the block size"):
        call(**spread | {"dcp_interleave": 3})
    with pytest.raises(BindingError, match="together"):
        call(prefill_request_id=to_device(req_id))
    with pytest.raises(BindingError, match="idx_mapping must be a contiguous"):
        call(idx_mapping=to_device(np.zeros((2, 2), np.int32))[:, 0])
    with pytest.raises(BindingError, match="blocks that fit"):
        call(block_stride_rows=8)
