"""BuildPrefillChunkMetadata against a plain reference:

exact, every element of the three outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_build_prefill_chunk_metadata import build_prefill_chunk_metadata as reference
from references_build_prefill_chunk_metadata import local_length

from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.build_prefill_chunk_metadata import build_prefill_chunk_metadata

Move = Callable[..., torch.Tensor]
Untouched = Callable[[torch.Tensor], np.ndarray]

WORLDS = [(w, rank) for w in (1, 2, 4, 8) for rank in range(w)]


def cumulative(values: Any) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(values)]).astype(np.int32)


def chunk(query_lens: Any, contexts: Any, ratio: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tensors of a chunk:

    query_start_loc, uncompressed lengths, cumulative compressed lengths.
    """
    seq_lens = (np.array(query_lens) + np.array(contexts)).astype(np.int32)
    return cumulative(query_lens), seq_lens, cumulative(seq_lens // ratio)


def check(
    case: Any,
    to_device: Move,
    poison: Move,
    bounds: tuple[int, int] | None = None,
    *,
    ratio: int = 1,
    world: tuple[int, int] = (1, 0),
    interleave: int = 1,
    row_starts: np.ndarray | None = None,
) -> None:
    query_start_loc, seq_lens, cu = case
    start, stop = bounds or (0, int(query_start_loc[-1]))
    size, rank = world
    if size > 1:
        local = [local_length(int(n), rank, size, interleave) for n in np.diff(cu)]
        row_starts = cumulative(local)
    token_to_seq = poison(to_device(np.zeros(cu[-1], np.int32)))
    ks = poison(to_device(np.zeros(stop - start, np.int32)))
    ke = poison(to_device(np.zeros(stop - start, np.int32)))
    result = build_prefill_chunk_metadata(
        to_device(query_start_loc),
        to_device(seq_lens),
        to_device(cu),
        start,
        stop,
        token_to_seq=token_to_seq,
        compress_ratio=ratio,
        row_starts=None if row_starts is None else to_device(row_starts),
        dcp_rank=rank,
        dcp_world_size=size,
        dcp_interleave=interleave,
        cu_seqlen_ks=ks,
        cu_seqlen_ke=ke,
    )
    assert all(a is b for a, b in zip(result, (token_to_seq, ks, ke), strict=True))
    starts = cu if row_starts is None else row_starts
    expected = reference(
        query_start_loc,
        seq_lens,
        cu,
        starts,
        start,
        stop,
        ratio=ratio,
        rank=rank,
        world_size=size,
        interleave=interleave,
    )
    for found, wanted in zip(result, expected, strict=True):
        np.testing.assert_array_equal(found.cpu().numpy(), wanted)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("interleave", [1, 3, 16])
@pytest.mark.parametrize("ratio", [1, 4])
def test_every_rank_and_interleave(
    rng: np.random.Generator,
    to_device: Move,
    poison: Move,
    world: tuple[int, int],
    interleave: int,
    ratio: int,
) -> None:
    case = chunk([5, 1, 17, 0, 30], rng.integers(0, 90, 5), ratio)
    check(case, to_device, poison, ratio=ratio, world=world, interleave=interleave)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17])
@pytest.mark.parametrize("context", [0, 1, 15, 16, 17])
@pytest.mark.parametrize("ratio", [1, 4, 128])
def test_small_lengths(
    to_device: Move, poison: Move, length: int, context: int, ratio: int
) -> None:
    check(chunk([length, 140], [context, 0], ratio), to_device, poison, ratio=ratio)


@pytest.mark.parametrize("length", [1023, 1024, 1025, 2100])
@pytest.mark.parametrize("ratio", [1, 4, 128])
def test_lengths_around_the_block(to_device: Move, poison: Move, length: int, ratio: int) -> None:
    check(chunk([3, length], [2049, 130], ratio), to_device, poison, ratio=ratio)


@pytest.mark.parametrize(
    "bounds",
    [(0, 0), (0, 1), (1, 2), (2, 17), (16, 32), (1, 53), (0, 53), (22, 23), (48, 53), (53, 53)],
)
@pytest.mark.parametrize("world", [(1, 0), (4, 2)])
def test_slices_of_the_queries(
    rng: np.random.Generator,
    to_device: Move,
    poison: Move,
    bounds: tuple[int, int],
    world: tuple[int, int],
) -> None:
    """token_to_seq is always the whole chunk's; ks and ke are only the slice's."""
    case = chunk([5, 1, 17, 0, 30], [3, 64, 0, 9, 200], 1)
    check(case, to_device, poison, bounds, world=world, interleave=2)


def test_slices_join_to_the_whole(to_device: Move) -> None:
    query_start_loc, seq_lens, cu = map(to_device, chunk([40, 7, 33], [10, 0, 99], 4))
    token_to_seq = torch.zeros_like(cu[:1]).repeat(int(cu[-1]))

    def ends(start: int, stop: int) -> Any:
        return build_prefill_chunk_metadata(
            query_start_loc,
            seq_lens,
            cu,
            start,
            stop,
            token_to_seq=token_to_seq,
            compress_ratio=4,
        )[2]

    parts = [ends(start, min(start + 16, 80)) for start in range(0, 80, 16)]
    assert torch.equal(torch.cat(parts), ends(0, 80))


@pytest.mark.parametrize("world_size", [2, 4, 8])
@pytest.mark.parametrize("interleave", [1, 4])
def test_local_lengths_add_up_to_the_global_one(
    to_device: Move, world_size: int, interleave: int
) -> None:
    query_start_loc, seq_lens, cu = chunk([33, 20], [70, 5], 1)
    zeros = to_device(np.zeros(2, np.int32))

    def lengths(rank: int, size: int) -> Any:
        return build_prefill_chunk_metadata(
            to_device(query_start_loc),
            to_device(seq_lens),
            to_device(cu),
            0,
            53,
            token_to_seq=to_device(np.zeros(cu[-1], np.int32)),
            row_starts=zeros,
            dcp_rank=rank,
            dcp_world_size=size,
            dcp_interleave=interleave,
        )[2]

    total: Any = sum(lengths(rank, world_size) for rank in range(world_size))
    assert torch.equal(total, lengths(0, 1))


def test_a_global_plan_has_row_starts_of_its_own(to_device: Move, poison: Move) -> None:
    """Two rows of one request share a region; only the first of them has an extent in cu."""
    query_start_loc, seq_lens = cumulative([2, 3, 4]), np.array([4, 6, 4], np.int32)
    cu, row_starts = np.array([0, 6, 6, 10], np.int32), np.array([0, 0, 6], np.int32)
    check((query_start_loc, seq_lens, cu), to_device, poison, row_starts=row_starts)


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
@pytest.mark.parametrize("world", [(1, 0), (8, 5)])
def test_slices_of_larger_buffers(
    at_offset: Move, poison: Move, offset: int, world: tuple[int, int]
) -> None:
    case = chunk([5, 16, 2], [1, 33, 12], 1)
    check(case, lambda v: at_offset(v, offset), poison, (1, 20), world=world)


def test_nothing_runs_without_compressed_states(
    to_device: Move, untouched: Untouched, poison: Move
) -> None:
    query_start_loc, seq_lens, cu = map(to_device, chunk([2, 1], [0, 0], 4))
    ends = poison(torch.empty_like(cu))
    result = build_prefill_chunk_metadata(
        query_start_loc,
        seq_lens,
        cu,
        0,
        3,
        token_to_seq=cu[:0],
        compress_ratio=4,
        cu_seqlen_ks=ends,
        cu_seqlen_ke=ends,
    )
    assert result[0].numel() == 0 and untouched(ends).all()


def test_what_does_not_fit_is_refused(to_device: Move) -> None:
    query_start_loc, seq_lens, cu = map(to_device, chunk([2, 3], [0, 4], 1))
    for bad in (
        (query_start_loc[:2], seq_lens, cu),
        (query_start_loc, seq_lens, cu[:2]),
        (query_start_loc, seq_lens.repeat(2), cu),
    ):
        with pytest.raises(BindingError, match="entries of"):
            build_prefill_chunk_metadata(*bad, 0, 5, token_to_seq=cu.new_empty(9))
    with pytest.raises(BindingError, match="its length of ks and ke"):
        build_prefill_chunk_metadata(
            query_start_loc, seq_lens, cu, 0, 5, token_to_seq=cu.new_empty(9), cu_seqlen_ks=cu[:2]
        )
