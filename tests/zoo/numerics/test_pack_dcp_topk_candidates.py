"""PackDCPTopkCandidates against numpy: exact, every element of the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_pack_dcp_topk_candidates import pack_dcp_topk_candidates as reference

from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.pack_dcp_topk_candidates import pack_dcp_topk_candidates

Move = Callable[..., torch.Tensor]

WORLDS = [(w, rank) for w in (1, 2, 4, 8) for rank in range(w)]


def random_case(
    rng: np.random.Generator, rows: int, topk: int, columns: int, *, starts: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Logits with infinities and NaN, ids of which a third is empty, and row starts or None."""
    logits = rng.standard_normal((rows, columns)).astype(np.float32)
    logits[rng.random(logits.shape) < 0.05] = rng.choice([np.inf, -np.inf, np.nan])
    ids = rng.integers(0, columns + 3, (rows, topk)).astype(np.int32)  # a few past the end
    empty = rng.random(ids.shape) < 0.3
    ids[empty] = rng.choice(np.array([-1, -2, -17, -(2**31)], np.int32), empty.sum())
    row_starts = rng.integers(0, columns, rows).astype(np.int32) if starts else None
    return logits, ids, row_starts


def check(
    case: Any, to_device: Move, poison: Move, world: tuple[int, int] = (1, 0), interleave: int = 1
) -> None:
    logits, ids, row_starts = case
    size, rank = world
    packed = poison(torch.empty((*ids.shape, 2), dtype=torch.float32, device=to_device(ids).device))
    result = pack_dcp_topk_candidates(
        to_device(logits),
        to_device(ids),
        None if row_starts is None else to_device(row_starts),
        packed,
        dcp_rank=rank,
        dcp_world_size=size,
        cp_interleave=interleave,
    )
    assert result is packed
    expected = reference(logits, ids, row_starts, rank, size, interleave)
    np.testing.assert_array_equal(packed.cpu().numpy(), expected)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("interleave", [1, 3, 16])
def test_every_rank_and_interleave(
    rng: np.random.Generator, to_device: Move, poison: Move, world: tuple[int, int], interleave: int
) -> None:
    starts = (world[0] + interleave) % 2 == 0
    check(random_case(rng, 3, 64, 100, starts=starts), to_device, poison, world, interleave)


@pytest.mark.parametrize("topk", [1, 2, 15, 16, 17, 511, 512, 513, 1024])
@pytest.mark.parametrize("starts", [False, True])
def test_row_lengths_around_the_tile(
    rng: np.random.Generator, to_device: Move, poison: Move, topk: int, starts: bool
) -> None:
    check(random_case(rng, 2, topk, 37, starts=starts), to_device, poison, (4, 3), 2)


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17])
def test_row_counts(rng: np.random.Generator, to_device: Move, poison: Move, rows: int) -> None:
    check(random_case(rng, rows, 16, 20, starts=True), to_device, poison, (2, 1))


def test_columns_are_clamped_at_the_last(to_device: Move, poison: Move) -> None:
    logits = np.array([[1.0, 2.0, 3.0]], np.float32)
    ids = np.array([[0, 2, 3, 500, -1]], np.int32)
    for starts in (None, np.array([1], np.int32), np.array([400], np.int32)):
        check((logits, ids, starts), to_device, poison)


def test_a_row_start_moves_the_column_and_not_the_id(to_device: Move) -> None:
    packed = pack_dcp_topk_candidates(
        to_device(np.arange(8, dtype=np.float32)[None]),
        to_device(np.array([[2]], np.int32)),
        to_device(np.array([5], np.int32)),
        dcp_rank=1,
        dcp_world_size=2,
        cp_interleave=1,
    )
    assert packed.tolist() == [[[7.0, 5.0]]]


def test_no_columns_reads_nothing(to_device: Move) -> None:
    packed = pack_dcp_topk_candidates(
        to_device(np.zeros((2, 0), np.float32)),
        to_device(np.full((2, 3), -1, np.int32)),
        dcp_rank=0,
        dcp_world_size=2,
        cp_interleave=1,
    )
    assert packed[..., 0].eq(-torch.inf).all() and packed[..., 1].eq(-1).all()


@pytest.mark.parametrize("first", [2**24 - 4, 2**24 - 1, 2**24, 2**25 + 1, 2**28 - 5])
def test_ids_near_the_end_of_exact_floats(to_device: Move, poison: Move, first: int) -> None:
    """Above 2**24 an id becomes the nearest even float."""
    ids = np.arange(first, first + 8, dtype=np.int32)[None]
    check((np.ones((1, 4), np.float32), ids, None), to_device, poison)
    check((np.ones((1, 4), np.float32), ids // 8, None), to_device, poison, (8, 5))


def test_any_strides(rng: np.random.Generator, to_device: Move, poison: Move) -> None:
    logits, ids, _ = random_case(rng, 5, 24, 30, starts=False)
    wide = poison(torch.empty((2, 24, 5, 3), dtype=torch.float32, device=to_device(ids).device))
    packed = wide[:, :, :, 1].permute(2, 1, 0)  # strides (3, 15, 360)
    pack_dcp_topk_candidates(
        to_device(logits.T).T,
        to_device(np.repeat(ids, 2, axis=1))[:, ::2],
        packed=packed,
        dcp_rank=1,
        dcp_world_size=4,
        cp_interleave=1,
    )
    np.testing.assert_array_equal(packed.cpu().numpy(), reference(logits, ids, None, 1, 4, 1))


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
def test_slices_at_any_offset(
    rng: np.random.Generator, at_offset: Move, poison: Move, offset: int
) -> None:
    case = random_case(rng, 3, 20, 33, starts=True)
    check(case, lambda values: at_offset(values, offset), poison, (8, 7))


def test_every_rank_covers_the_sequence_once(to_device: Move) -> None:
    """The local columns of all ranks are the global ids, each once."""
    ids = np.arange(12, dtype=np.int32)[None]
    seen = []
    for rank in range(4):
        packed = pack_dcp_topk_candidates(
            to_device(np.zeros((1, 12), np.float32)),
            to_device(ids),
            dcp_rank=rank,
            dcp_world_size=4,
            cp_interleave=3,
        )
        seen += packed[0, :, 1].int().tolist()
    assert sorted(seen) == list(range(48))


def test_what_does_not_fit_is_refused(to_device: Move) -> None:
    logits, ids = to_device(np.zeros((2, 4), np.float32)), to_device(np.zeros((2, 3), np.int32))
    group = {"dcp_rank": 0, "dcp_world_size": 2, "cp_interleave": 1}
    with pytest.raises(BindingError, match="float32"):
        pack_dcp_topk_candidates(logits.double(), ids, **group)
    with pytest.raises(BindingError, match="int32"):
        pack_dcp_topk_candidates(logits, ids.long(), **group)
    with pytest.raises(BindingError, match="int32"):
        pack_dcp_topk_candidates(logits, ids, ids[:, 0].long(), **group)
    with pytest.raises(BindingError, match="packed float32"):
        pack_dcp_topk_candidates(logits, ids, packed=logits[..., None], **group)
    with pytest.raises(BindingError, match="rank 2 of 2"):
        pack_dcp_topk_candidates(logits, ids, **group | {"dcp_rank": 2})
