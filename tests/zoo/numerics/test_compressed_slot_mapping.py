"""CompressedSlotMapping against a token-by-token reference: exact, every entry of the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_compressed_slot_mapping import compressed_slot_mapping_reference

from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.compressed_slot_mapping import compressed_slot_mapping
from jitwarm.zoo.kernels.compute_slot_mapping import compute_slot_mapping

Move = Callable[..., torch.Tensor]


class Batch:
    """A step: contexts, new tokens whose own slots are mostly valid, a table of shuffled blocks."""

    def __init__(
        self,
        rng: np.random.Generator,
        queries: list[int],
        *,
        contexts: list[int] | None = None,
        block_size: int = 4,
        ratio: int = 4,
        world_size: int = 1,
        interleave: int = 1,
        missing: float = 0.2,
    ) -> None:
        contexts = contexts or rng.integers(0, 700, len(queries)).tolist()
        self.sizes = {"block_size": block_size, "world_size": world_size, "interleave": interleave}
        self.ratio = ratio
        self.query_start_loc = np.cumsum([0, *queries]).astype(np.int32)
        self.seq_lens = np.array(contexts, np.int32) + np.array(queries, np.int32)
        tokens = int(self.query_start_loc[-1])
        self.slot_mapping = rng.integers(0, 2**40, tokens)
        self.slot_mapping[rng.random(tokens) < missing] = -1
        width = int(self.seq_lens.max(initial=0)) // (ratio * block_size) + 1
        numbers = rng.permutation(max(len(queries), 1) * (width + 3)).astype(np.int32)
        self.block_table = numbers.reshape(-1, width + 3)[: len(queries)]

    def tensors(self, move: Move) -> tuple[torch.Tensor, ...]:
        return tuple(
            map(move, (self.slot_mapping, self.query_start_loc, self.seq_lens, self.block_table))
        )

    def constants(self) -> dict[str, int]:
        return {
            "block_size": self.sizes["block_size"],
            "compress_ratio": self.ratio,
            "dcp_world_size": self.sizes["world_size"],
            "cp_interleave": self.sizes["interleave"],
        }

    def check(self, move: Move, out: torch.Tensor | None = None) -> np.ndarray:
        """Launch, compare the whole output with the reference and return it."""
        result = compressed_slot_mapping(*self.tensors(move), **self.constants(), out=out)
        assert result.dtype == torch.int64 and result.shape == self.slot_mapping.shape
        whole = result if out is None else out
        expected = compressed_slot_mapping_reference(
            self.slot_mapping,
            self.query_start_loc,
            self.seq_lens,
            self.block_table,
            ratio=self.ratio,
            length=len(whole),
            **self.sizes,
        )
        np.testing.assert_array_equal(whole.cpu().numpy(), expected)
        np.testing.assert_array_equal(result.cpu().numpy(), expected[: len(self.slot_mapping)])
        return expected


def test_worked_example(to_device: Move) -> None:
    """Blocks of 64 states of 4 tokens, 240 tokens computed, 40 new ones."""
    got = compressed_slot_mapping(
        to_device(np.arange(40)),
        to_device([0, 40], torch.int32),
        to_device([280], torch.int32),
        to_device([[5, 7]], torch.int32),
        block_size=64,
        compress_ratio=4,
    )
    slots = got.cpu().numpy()
    assert slots[3::4].tolist() == [*range(380, 384), *range(448, 454)]
    assert (slots == -1).sum() == 30


@pytest.mark.parametrize(
    "queries",
    [[1], [4], [1] * 9, [0, 3, 0, 0, 1, 0], [63, 64, 65], [1023, 1024, 1025], [2500], [0]],
    ids=str,
)
@pytest.mark.parametrize(("ratio", "block_size"), [(4, 64), (128, 2)])
def test_batches(
    queries: list[int], ratio: int, block_size: int, rng: Any, to_device: Move, poison: Move
) -> None:
    batch = Batch(rng, queries, ratio=ratio, block_size=block_size)
    batch.check(to_device, poison(to_device(np.zeros(len(batch.slot_mapping), np.int64))))


@pytest.mark.parametrize("ratio", [1, 2, 3, 4, 32, 128])
@pytest.mark.parametrize("block_size", [1, 2, 5, 8, 64])
def test_sizes(ratio: int, block_size: int, rng: Any, to_device: Move) -> None:
    batch = Batch(rng, [1, 140, 2, 33], ratio=ratio, block_size=block_size)
    assert (batch.check(to_device) >= 0).any() or ratio == 128


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
@pytest.mark.parametrize(("ratio", "interleave"), [(1, 1), (4, 4), (4, 12), (4, 64), (32, 32)])
def test_worlds(world_size: int, ratio: int, interleave: int, rng: Any, to_device: Move) -> None:
    batch = Batch(
        rng, [1, 300, 5, 64], ratio=ratio, world_size=world_size, interleave=interleave, missing=0.0
    )
    assert (batch.check(to_device) >= 0).any()


@pytest.mark.parametrize("interleave", [1, 3, 16, 100])
def test_one_rank_has_every_token_whatever_the_interleave(
    interleave: int, rng: Any, to_device: Move
) -> None:
    batch = Batch(rng, [150, 7], interleave=interleave)
    plain = compressed_slot_mapping(*batch.tensors(to_device), block_size=4, compress_ratio=4)
    np.testing.assert_array_equal(batch.check(to_device), plain.cpu().numpy())


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("ratio", "interleave", "block_size"), [(4, 4, 4), (4, 16, 8), (32, 64, 2)]
)
@pytest.mark.parametrize("contexts", [[0, 0], [3, 90]], ids=str)
def test_the_ranks_share_the_states(
    world_size: int, ratio: int, interleave: int, block_size: int, contexts: list[int],
    rng: Any, to_device: Move,
) -> None:  # fmt: skip
    """Each rank has its own slot mapping; together they hold every new state exactly once."""
    queries = [260, 131]
    batch = Batch(
        rng, queries, contexts=contexts, ratio=ratio, block_size=block_size,
        world_size=world_size, interleave=interleave,
    )  # fmt: skip
    spans = [range(c, c + n) for c, n in zip(contexts, queries, strict=True)]
    owner = np.full(int(batch.query_start_loc[-1]), -1)
    for rank in range(world_size):
        own = compute_slot_mapping(
            to_device(batch.query_start_loc),
            to_device(np.concatenate(spans)),
            to_device(batch.block_table),
            to_device(np.zeros(len(owner), np.int64)),
            kv_cache_block_size=block_size * ratio,
            total_cp_world_size=world_size,
            total_cp_rank=rank,
            cp_kv_cache_interleave_size=interleave,
        )
        _, *rest = batch.tensors(to_device)
        slots = compressed_slot_mapping(own, *rest, **batch.constants()).cpu().numpy()
        mine = slots >= 0
        assert (owner[mine] == -1).all(), "two ranks hold the same state"
        owner[mine] = rank
        assert len(set(slots[mine])) == mine.sum(), "two states share a slot"
        # A state lies in the block of its last token, at its own place among r tokens.
        np.testing.assert_array_equal(slots[mine], own.cpu().numpy()[mine] // ratio)
    positions = np.concatenate(spans)
    completes = (positions + 1) % ratio == 0
    np.testing.assert_array_equal(
        owner, np.where(completes, positions // interleave % world_size, -1)
    )


def test_states_of_one_rank_lie_side_by_side(to_device: Move) -> None:
    """Rank 1 of 2, turns of 8 tokens: tokens 8..15, 24..31, ... are its states 0, 1, 2, 3, ..."""
    positions = np.arange(64)
    own = np.where(positions // 8 % 2 == 1, 0, -1)
    got = compressed_slot_mapping(
        to_device(own), to_device([0, 64], torch.int32), to_device([64], torch.int32),
        to_device([[3, 1]], torch.int32), block_size=4, compress_ratio=4,
        dcp_world_size=2, cp_interleave=8,
    )  # fmt: skip
    slots = got.cpu().numpy()
    assert slots[slots >= 0].tolist() == [12, 13, 14, 15, 4, 5, 6, 7]


@pytest.mark.parametrize("spare", [0, 1, 1023, 1024, 3000])
def test_a_given_buffer_is_written_completely(
    spare: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [5, 30])
    out = poison(to_device(np.zeros(35 + spare, np.int64)))
    batch.check(to_device, out)
    assert not untouched(out).any()
    assert (out[35:] == -1).all()


def test_requests_that_are_not_in_the_table_have_no_state(
    rng: Any, to_device: Move, poison: Move
) -> None:
    """Entries that no row of the table covers, before, behind, and with no row at all."""
    batch = Batch(rng, [8, 8, 8, 8], contexts=[0, 4, 8, 12], missing=0.0)
    slots, starts, lens, table = batch.tensors(to_device)

    def states(first: int, last: int) -> np.ndarray:
        out = poison(to_device(np.zeros(40, np.int64)))
        compressed_slot_mapping(
            slots, starts[first : last + 1], lens[first:last], table[first:last],
            block_size=4, compress_ratio=4, out=out,
        )  # fmt: skip
        return out.cpu().numpy()

    whole = states(0, 4)
    for first, last in [(0, 2), (1, 3), (2, 4), (0, 0), (4, 4)]:
        covered = np.zeros(40, bool)
        covered[8 * first : 8 * last] = True
        np.testing.assert_array_equal(states(first, last), np.where(covered, whole, -1))


def test_padded_requests(rng: Any, to_device: Move) -> None:
    """Of a captured graph: a token each, but sequence length 0, so that positions are negative.

    Position -1 would look like the last token of a state.
    """
    batch = Batch(rng, [2, 1, 1, 9, 4], missing=0.0)
    batch.seq_lens[[1, 2, 4]] = 0
    batch.seq_lens[3] = 3  # a query longer than its sequence
    expected = batch.check(to_device)
    assert (expected[[2, 3, *range(4, 11), *range(13, 17)]] == -1).all()
    assert expected[11:13].tolist() == [-1, -1]  # positions 0..2 complete nothing


def test_no_tokens_and_no_requests(rng: Any, to_device: Move, poison: Move) -> None:
    for queries in ([], [0, 0]):
        batch = Batch(rng, queries)
        assert batch.check(to_device).shape == (0,)
        out = poison(to_device(np.zeros(7, np.int64)))
        batch.check(to_device, out)
        assert (out == -1).all()


def test_only_minus_one_is_no_slot(to_device: Move) -> None:
    own = np.array([5, -1, -2, -(2**40), 0, 2**40])
    got = compressed_slot_mapping(
        to_device(own), to_device([0, 6], torch.int32), to_device([6], torch.int32),
        to_device([[2]], torch.int32), block_size=8, compress_ratio=1,
    )  # fmt: skip
    assert got.cpu().tolist() == [16, -1, 18, 19, 20, 21]


def test_all_tokens_are_replayed(rng: Any, to_device: Move) -> None:
    assert (Batch(rng, [40, 3], missing=1.0).check(to_device) == -1).all()


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
@pytest.mark.parametrize("world_size", [1, 2])
def test_slices_of_larger_buffers(
    offset: int, world_size: int, rng: Any, at_offset: Move, poison: Move
) -> None:
    batch = Batch(rng, [1, 70, 5], world_size=world_size, interleave=4)
    out = poison(at_offset(np.zeros(80, np.int64), offset))
    batch.check(lambda values: at_offset(values, offset), out)


def test_a_table_that_is_a_column_slice(rng: Any, to_device: Move) -> None:
    batch = Batch(rng, [30, 30])
    slots, starts, lens, table = batch.tensors(to_device)
    wide = torch.cat([table, torch.full_like(table, 2**30)], dim=1)
    got = compressed_slot_mapping(
        slots, starts, lens, wide[:, : table.shape[1]], block_size=4, compress_ratio=4
    )
    np.testing.assert_array_equal(got.cpu().numpy(), batch.check(to_device))


def test_slots_beyond_32_bits(rng: Any, to_device: Move) -> None:
    batch = Batch(rng, [40], block_size=64, missing=0.0)
    batch.block_table[:] += 2**31 - 1 - batch.block_table.max()
    expected = batch.check(to_device)
    assert expected.max() > 2**36


@pytest.mark.parametrize(("world_size", "interleave"), [(1, 1), (2, 128), (8, 2**20)])
def test_positions_up_to_the_largest_int32(
    world_size: int, interleave: int, rng: Any, to_device: Move
) -> None:
    batch = Batch(
        rng, [2, 300, 1], contexts=[0, 0, 0], ratio=128, block_size=2**20,
        world_size=world_size, interleave=interleave, missing=0.0,
    )  # fmt: skip
    batch.seq_lens[:] = 2**31 - 1, 2**31 - 1, 2**31 - 128
    batch.block_table = rng.integers(0, 2**31, (3, 17)).astype(np.int32)
    expected = batch.check(to_device)
    assert (expected >= 0).sum() == 3  # two in the long query, and the token of the last


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ((0, 4, 1, 1), "1 or more"),
        ((4, 0, 1, 1), "1 or more"),
        ((4, 4, 0, 1), "1 or more"),
        ((4, 4, 1, 0), "1 or more"),
        ((4, 4, 2, 1), "tear states of 4 tokens apart"),
        ((4, 4, 8, 6), "tear states of 4 tokens apart"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    sizes: tuple[int, ...], problem: str, rng: Any, to_device: Move
) -> None:
    block_size, ratio, world_size, interleave = sizes
    with pytest.raises(BindingError, match=problem):
        compressed_slot_mapping(
            *Batch(rng, [3]).tensors(to_device),
            block_size=block_size,
            compress_ratio=ratio,
            dcp_world_size=world_size,
            cp_interleave=interleave,
        )


WRONG: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "slot-dtype": lambda s, q, n, t, o: (s.to(torch.int32), q, n, t, o),
    "start-dtype": lambda s, q, n, t, o: (s, q.to(torch.int64), n, t, o),
    "lens-dtype": lambda s, q, n, t, o: (s, q, n.to(torch.int64), t, o),
    "table-dtype": lambda s, q, n, t, o: (s, q, n, t.to(torch.int64), o),
    "out-dtype": lambda s, q, n, t, o: (s, q, n, t, o.to(torch.int32)),
    "starts": lambda s, q, n, t, o: (s, q[:-1], n, t, o),
    "lens": lambda s, q, n, t, o: (s, q, n[:-1], t, o),
    "out": lambda s, q, n, t, o: (s, q, n, t, o[:-1]),
    "flat-table": lambda s, q, n, t, o: (s, q, n, t[:, 0], o),
    "columns": lambda s, q, n, t, o: (s, q, n, t[:, ::2], o),
    "gaps": lambda s, q, n, t, o: (s[::2], q, n, t, o),
    "out-gaps": lambda s, q, n, t, o: (s[:3], q, n, t, o[::2]),
    "two-dimensions": lambda s, q, n, t, o: (s[:, None], q, n, t, o),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_tensors_that_do_not_fit_are_refused(
    wrong: Callable[..., Any], rng: Any, to_device: Move
) -> None:
    tensors = Batch(rng, [3, 4]).tensors(to_device)
    *batch, out = wrong(*tensors, torch.empty_like(tensors[0]))
    with pytest.raises(BindingError, match="CompressedSlotMapping: needs contiguous"):
        compressed_slot_mapping(*batch, block_size=4, compress_ratio=4, out=out)
