"""ComputeSlotMapping against a token-by-token reference, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_compute_slot_mapping import slot_mapping_reference

from jitwarm.errors import JitwarmError
from jitwarm.zoo.kernels.compute_slot_mapping import block_table_width, compute_slot_mapping

Move = Callable[..., torch.Tensor]
WORLDS = [(world, rank) for world in (1, 2, 4, 8) for rank in range(world)]


class Batch:
    """A random step: contexts, new tokens, and a table of shuffled blocks in rows too wide."""

    def __init__(
        self,
        rng: np.random.Generator,
        queries: list[int],
        *,
        block_size: int = 16,
        world_size: int = 1,
        contexts: list[int] | None = None,
        spare_columns: int = 3,
    ) -> None:
        self.block_size, self.world_size = block_size, world_size
        contexts = contexts or rng.integers(0, 500, len(queries)).tolist()
        self.query_start_loc = np.cumsum([0, *queries]).astype(np.int32)
        ranges = [np.arange(c, c + n) for c, n in zip(contexts, queries, strict=True)]
        self.positions = np.concatenate([np.zeros(0), *ranges]).astype(np.int64)
        longest = max((c + n for c, n in zip(contexts, queries, strict=True)), default=1)
        self.width = -(-longest // (block_size * world_size))
        rows = len(queries) + 2  # the table has rows for more requests than the batch
        numbers = rng.permutation(rows * (self.width + spare_columns)).astype(np.int32)
        self.block_table = numbers.reshape(rows, -1)

    def reference(self, before: np.ndarray, **parallel: int) -> np.ndarray:
        """The expected mapping over the buffer `before`."""
        return slot_mapping_reference(
            before,
            self.query_start_loc,
            self.positions,
            self.block_table,
            block_size=self.block_size,
            world_size=self.world_size,
            **parallel,
        )


def launch(
    batch: Batch, out: torch.Tensor, move: Move, rank: int = 0, interleave: int = 1
) -> np.ndarray:
    """The mapping that the kernel makes, as numpy."""
    got = compute_slot_mapping(
        move(batch.query_start_loc),
        move(batch.positions),
        move(batch.block_table),
        out,
        kv_cache_block_size=batch.block_size,
        total_cp_world_size=batch.world_size,
        total_cp_rank=rank,
        cp_kv_cache_interleave_size=interleave,
    )
    assert got is out
    return got.cpu().numpy()


@pytest.mark.parametrize(
    "queries",
    [[1], [5], [1] * 9, [0, 3, 0, 0, 1, 0], [63, 64, 65], [1023, 1024, 1025], [2500], [0], []],
    ids=str,
)
def test_batches(queries: list[int], rng: Any, to_device: Move, poison: Move) -> None:
    batch = Batch(rng, queries)
    out = poison(to_device(np.empty(len(batch.positions) + 7, np.int64)))
    before = out.cpu().numpy().copy()
    np.testing.assert_array_equal(launch(batch, out, to_device), batch.reference(before))


@pytest.mark.parametrize("interleave", [1, 4, 16])
@pytest.mark.parametrize(("world_size", "rank"), WORLDS)
def test_every_rank(
    world_size: int, rank: int, interleave: int, rng: Any, to_device: Move, poison: Move
) -> None:
    batch = Batch(rng, [1, 40, 0, 200, 3], world_size=world_size)
    out = poison(to_device(np.empty(300, np.int64)))
    before = out.cpu().numpy().copy()
    expected = batch.reference(before, rank=rank, interleave=interleave)
    np.testing.assert_array_equal(launch(batch, out, to_device, rank, interleave), expected)


@pytest.mark.parametrize("world_size", [2, 4, 8])
@pytest.mark.parametrize("interleave", [1, 2, 8])
def test_the_ranks_share_the_tokens_without_gaps(
    world_size: int, interleave: int, rng: Any, to_device: Move
) -> None:
    tokens = 64 * world_size  # four whole blocks a rank, position 0 first
    batch = Batch(rng, [tokens], world_size=world_size, contexts=[0])
    owned = np.zeros(tokens, int)
    for rank in range(world_size):
        slots = launch(batch, to_device(np.zeros(tokens, np.int64)), to_device, rank, interleave)
        owned += slots >= 0
        entries = np.sort(slots[slots >= 0])
        blocks = np.sort(batch.block_table[0, :4].astype(np.int64))
        np.testing.assert_array_equal(entries, (blocks[:, None] * 16 + np.arange(16)).reshape(-1))
    assert (owned == 1).all()


@pytest.mark.parametrize("block_size", [1, 2, 48, 64, 256])
@pytest.mark.parametrize(("world_size", "rank"), [(1, 0), (3, 2), (8, 5)])
def test_block_sizes(
    block_size: int, world_size: int, rank: int, rng: Any, to_device: Move, poison: Move
) -> None:
    batch = Batch(rng, [1, 90, 2], block_size=block_size, world_size=world_size)
    out = poison(to_device(np.empty(100, np.int64)))
    before = out.cpu().numpy().copy()
    np.testing.assert_array_equal(
        launch(batch, out, to_device, rank), batch.reference(before, rank=rank)
    )


def test_tokens_between_the_last_query_and_the_positions_stay_stale(
    rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [3, 4])
    batch.positions = np.concatenate([batch.positions, np.full(5, 10**9)])  # never read
    out = poison(to_device(np.empty(20, np.int64)))
    got = launch(batch, out, to_device)
    assert untouched(out).nonzero()[0].tolist() == [7, 8, 9, 10, 11]
    assert (got[12:] == -1).all()
    assert (got[:7] >= 0).all()


@pytest.mark.parametrize("padding", [0, 1, 1024, 3000])
def test_padding_fills_the_rest_of_the_buffer(
    padding: int, rng: Any, to_device: Move, poison: Move
) -> None:
    batch = Batch(rng, [2, 1])
    got = launch(batch, poison(to_device(np.empty(3 + padding, np.int64))), to_device)
    assert (got[:3] >= 0).all()
    assert (got[3:] == -1).all()


@pytest.mark.parametrize("offset", [1, 2, 3, 16])
def test_slices_of_larger_buffers(offset: int, rng: Any, at_offset: Move, poison: Move) -> None:
    batch = Batch(rng, [1, 70, 5], world_size=2)
    out = poison(at_offset(np.zeros(90, np.int64), offset))
    before = out.cpu().numpy().copy()
    got = launch(batch, out, lambda values: at_offset(values, offset), rank=1)
    np.testing.assert_array_equal(got, batch.reference(before, rank=1))


def test_a_table_that_is_a_column_slice(rng: Any, to_device: Move) -> None:
    batch = Batch(rng, [30, 30], spare_columns=20)
    out = to_device(np.zeros(60, np.int64))
    compute_slot_mapping(
        to_device(batch.query_start_loc),
        to_device(batch.positions),
        to_device(batch.block_table)[:, : batch.width],
        out,
        kv_cache_block_size=16,
    )
    np.testing.assert_array_equal(out.cpu().numpy(), batch.reference(np.zeros(60, np.int64)))


def test_a_table_of_one_column(rng: Any, to_device: Move) -> None:
    batch = Batch(rng, [3, 2], block_size=64, contexts=[0, 10], spare_columns=0)
    assert batch.block_table.shape[1] == 1  # a stride of 1 is a constant to the compiler
    got = launch(batch, to_device(np.zeros(5, np.int64)), to_device)
    np.testing.assert_array_equal(got, batch.reference(np.zeros(5, np.int64)))


def test_negative_positions_have_no_slot(rng: Any, to_device: Move) -> None:
    batch = Batch(rng, [4], contexts=[8])
    batch.positions[[0, 2]] = [-1, -(2**40)]
    got = launch(batch, to_device(np.zeros(4, np.int64)), to_device)
    assert (got >= 0).tolist() == [False, True, False, True]


def test_slots_beyond_32_bits(rng: Any, to_device: Move) -> None:
    batch = Batch(rng, [40], block_size=64)
    batch.block_table[:] += 2**30
    got = launch(batch, to_device(np.zeros(40, np.int64)), to_device)
    assert got.min() > 2**31
    np.testing.assert_array_equal(got, batch.reference(np.zeros(40, np.int64)))


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ((0, 1, 0, 1), "1 or more"),
        ((16, 0, 0, 1), "1 or more"),
        ((16, 1, 0, 0), "1 or more"),
        ((16, 2, 2, 1), "1 or more"),
        ((16, 2, -1, 1), "1 or more"),
        ((16, 2, 0, 5), "divides the block size"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    sizes: tuple[int, ...], problem: str, to_device: Move
) -> None:
    block_size, world_size, rank, interleave = sizes
    with pytest.raises(JitwarmError, match=problem):
        compute_slot_mapping(
            to_device([0, 1], torch.int32),
            to_device([0]),
            to_device([[0]], torch.int32),
            to_device([0]),
            kv_cache_block_size=block_size,
            total_cp_world_size=world_size,
            total_cp_rank=rank,
            cp_kv_cache_interleave_size=interleave,
        )


@pytest.mark.parametrize("wrong", ["dtype", "requests", "tokens", "columns"])
def test_tensors_that_do_not_fit_are_refused(wrong: str, to_device: Move) -> None:
    start, positions = to_device([0, 1, 2], torch.int32), to_device([0, 0])
    table, out = to_device([[0, 0], [0, 0]], torch.int32), to_device([0, 0])
    if wrong == "dtype":
        start = start.to(torch.int64)
    if wrong == "requests":
        table = table[:1]
    if wrong == "tokens":
        out = out[:1]
    if wrong == "columns":
        table = to_device(np.zeros((2, 8), np.int32))[:, ::2]
    with pytest.raises(ValueError, match="ComputeSlotMapping: needs"):
        compute_slot_mapping(start, positions, table, out, kv_cache_block_size=16)


@pytest.mark.parametrize(
    ("max_model_len", "block_size", "world_size", "width"),
    [
        (163_840, 64, 1, 2560),
        (163_840, 64, 8, 320),
        (1_048_576, 256, 1, 4096),
        (163_841, 64, 1, 2562),
        (1, 64, 1, 2),
        (1, 128, 1, 1),
        (1, 256, 8, 1),
        (1000, 16, 1, 64),
        (1000, 48, 1, 24),  # 21 blocks; 128 / gcd(128, 48) = 8
        (1000, 1, 1, 1024),
    ],
)
def test_width_of_a_block_table(
    max_model_len: int, block_size: int, world_size: int, width: int
) -> None:
    assert block_table_width(max_model_len, block_size, world_size) == width
    assert width * block_size % 128 == 0
    assert width * block_size * world_size >= max_model_len


def test_width_without_rounding() -> None:
    assert block_table_width(1000, 48, alignment=1) == 21


@pytest.mark.parametrize("alignment", [0, -128])
def test_an_alignment_that_is_not_positive_is_refused(alignment: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        block_table_width(1000, 64, alignment=alignment)


@pytest.mark.parametrize("sizes", [(0, 64, 1), (1000, 0, 1), (1000, 64, 0)])
def test_a_width_of_nothing_is_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        block_table_width(*sizes)
