"""The Triton twin of StableTopKFromGatheredCandidates against numpy: exact, in order.

The reference's two modes are checked here too, by hand-made rows: both twins rely on them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from references_stable_topk import assert_same_sets
from references_stable_topk import stable_topk as reference

from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.pack_dcp_topk_candidates import pack_dcp_topk_candidates
from jitwarm.zoo.kernels.stable_topk_triton import stable_topk_triton

Move = Callable[..., torch.Tensor]

POSITIVE_NAN, NEGATIVE_NAN = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
SPECIAL = np.array([np.inf, -np.inf, POSITIVE_NAN, NEGATIVE_NAN, 0.0, -0.0, 1e-45, -1e-45])


def pairs(scores: object, ids: object) -> np.ndarray:
    """Scores and ids of the same shape as gathered candidates; bit patterns of NaN stay."""
    return np.stack([np.array(scores, np.float32), np.array(ids, np.float32)], axis=-1)


def random_case(
    rng: np.random.Generator, rows: int, candidates: int, *, levels: int = 0, empty: float = 0.1
) -> np.ndarray:
    """Distinct ids in any order, some empty; scores of `levels` values (0: all different), some
    special.
    """
    scores = rng.standard_normal((rows, candidates)).astype(np.float32)
    if levels:
        scores = rng.integers(0, levels, scores.shape).astype(np.float32)
    special = rng.random(scores.shape) < 0.1
    scores[special] = rng.choice(SPECIAL.astype(np.float32), special.sum())
    ids = np.empty(scores.shape, np.int64)
    for row in ids:
        row[:] = rng.permutation(4 * candidates)[:candidates]
    gone = rng.random(ids.shape) < empty
    ids[gone] = rng.choice([-1, -2, -17, -(2**31)], gone.sum())
    return pairs(scores, ids)


def check(gathered: np.ndarray, topk: int, to_device: Move, poison: Move) -> None:
    expected = reference(gathered, topk)
    out = poison(to_device(np.zeros(expected.shape, np.int32)))
    result = stable_topk_triton(to_device(gathered), topk=topk, out=out)
    assert result is out
    np.testing.assert_array_equal(out.cpu().numpy(), expected)


@pytest.mark.parametrize("topk", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("levels", [0, 3])
def test_sizes(
    rng: np.random.Generator, to_device: Move, poison: Move, topk: int, ranks: int, levels: int
) -> None:
    check(random_case(rng, 2, ranks * topk, levels=levels), topk, to_device, poison)


@pytest.mark.parametrize(
    ("topk", "ranks", "rows"),
    [
        (512, 2, 1),
        (2048, 1, 1),
        # An interpreted sort takes seconds a tile, in Python.
        pytest.param(512, 8, 300, marks=pytest.mark.gpu),
        pytest.param(2048, 2, 300, marks=pytest.mark.gpu),
        pytest.param(2048, 8, 300, marks=pytest.mark.gpu),
    ],
)
def test_rows_of_real_indexers(
    rng: np.random.Generator, to_device: Move, poison: Move, topk: int, ranks: int, rows: int
) -> None:
    check(random_case(rng, rows, ranks * topk, levels=50), topk, to_device, poison)


@pytest.mark.parametrize("rows", [0, 1, 15, 17])
def test_row_counts(rng: np.random.Generator, to_device: Move, poison: Move, rows: int) -> None:
    check(random_case(rng, rows, 32), 8, to_device, poison)


@pytest.mark.parametrize("valid", [0, 1, 7, 8, 9, 15, 16, 32])
def test_fewer_valid_than_wanted(
    rng: np.random.Generator, to_device: Move, poison: Move, valid: int
) -> None:
    """16 of 32, of which `valid` are there, anywhere; the best scores are those of empty ones."""
    gathered = random_case(rng, 3, 32, levels=4, empty=0)
    for row in gathered:
        row[rng.permutation(32)[valid:]] = np.inf, -1
    check(gathered, 16, to_device, poison)
    assert ((reference(gathered, 16) >= 0).sum(axis=1) == min(valid, 16)).all()


def test_ties_go_to_the_lowest_id(to_device: Move) -> None:
    ids = [[40, 3, 12, 7, 2, 25, 1, 90]]
    best = stable_topk_triton(to_device(pairs([[5.0] * 8], ids)), topk=4)
    assert best.tolist() == [[1, 2, 3, 7]]
    best = stable_topk_triton(to_device(pairs([[1, 5, 5, 1, 5, 1, 1, 9]], ids)), topk=4)
    assert best.tolist() == [[90, 2, 3, 12]]


def test_zeros_are_equal_and_nan_is_last(to_device: Move) -> None:
    scores = [0.0, -0.0, POSITIVE_NAN, NEGATIVE_NAN, -np.inf, np.inf, POSITIVE_NAN, 0.0]
    gathered = pairs([scores], [[6, 5, 4, 3, 2, 1, -1, 7]])
    assert stable_topk_triton(to_device(gathered), topk=8).tolist() == [[1, 5, 6, 7, 2, 3, 4, -1]]
    assert reference(gathered, 8).tolist() == [[1, 5, 6, 7, 2, 3, 4, -1]]
    assert reference(gathered, 8, "cutedsl").tolist() == [[4, 1, 6, 7, 5, 2, 3, -1]]


def test_neighbouring_scores(to_device: Move, poison: Move) -> None:
    """Scores one bit apart, of both signs, are not ties."""
    near = np.array([1.0, 1.5e-45, 3e38], np.float32)
    scores = np.concatenate([near, np.nextafter(near, np.float32(0))])
    scores = np.concatenate([scores, -scores, [np.inf, -np.inf, 0, 1]]).astype(np.float32)
    check(pairs(scores[None], np.arange(16)[None]), 16, to_device, poison)
    check(pairs(scores[None, ::-1], np.arange(16)[None]), 16, to_device, poison)


@pytest.mark.parametrize("last", [2**24, 2**29, 2**30 - 64])
def test_large_ids(to_device: Move, poison: Move, last: int) -> None:
    """The largest floats below `last` and itself, in ties; -0.0 is the id 0."""
    ids = [np.float32(last)]
    while len(ids) < 15:
        ids.append(np.nextafter(ids[-1], np.float32(0)))
    gathered = pairs(np.array([[2.0] * 8 + [-2.0] * 8]), [[-0.0, *ids]])
    check(gathered, 16, to_device, poison)
    check(gathered[:, ::-1], 8, to_device, poison)


def test_a_candidate_that_is_there_twice(to_device: Move) -> None:
    gathered = pairs([[3, 3, 3, 1]], [[5, 5, 4, 9]])
    assert stable_topk_triton(to_device(gathered), topk=4).tolist() == [[4, 5, 5, 9]]


@pytest.mark.parametrize("offset", [2, 4, 6])
def test_slices_at_any_pair(
    rng: np.random.Generator, at_offset: Move, poison: Move, offset: int
) -> None:
    check(random_case(rng, 3, 32), 8, lambda values: at_offset(values, offset), poison)


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
def test_an_output_at_any_offset(
    rng: np.random.Generator, to_device: Move, at_offset: Move, offset: int
) -> None:
    gathered = random_case(rng, 3, 32)
    out = at_offset(np.zeros((3, 8), np.int32), offset)
    stable_topk_triton(to_device(gathered), topk=8, out=out)
    np.testing.assert_array_equal(out.cpu().numpy(), reference(gathered, 8))


def test_rows_inside_larger_ones(
    rng: np.random.Generator, to_device: Move, poison: Move, untouched: Callable[..., np.ndarray]
) -> None:
    """Row strides of both tensors are free; nothing between the rows is read or written."""
    wide = random_case(rng, 4, 40)
    out = poison(to_device(np.zeros((4, 11), np.int32)))
    stable_topk_triton(to_device(wide)[:, 4:36], topk=8, out=out[:, 2:10])
    np.testing.assert_array_equal(out[:, 2:10].cpu().numpy(), reference(wide[:, 4:36], 8))
    assert untouched(out)[:, [0, 1, 10]].all()


@pytest.mark.parametrize("interleave", [1, 4])
def test_what_every_rank_packed(rng: np.random.Generator, to_device: Move, interleave: int) -> None:
    """The best tokens of a row of logits that four ranks hold parts of are those of the whole."""
    ranks, topk = 4, 16
    logits = rng.integers(0, 9, (3, 64 * ranks)).astype(np.float32)
    token = np.arange(logits.shape[1])
    packed = []
    for rank in range(ranks):
        own = logits[:, token // interleave % ranks == rank]
        best = np.argsort(-own, axis=1, kind="stable")[:, :topk].astype(np.int32)
        given = {"dcp_rank": rank, "dcp_world_size": ranks, "cp_interleave": interleave}
        packed.append(pack_dcp_topk_candidates(to_device(own), to_device(best), **given))
    found = stable_topk_triton(torch.cat(packed, dim=1), topk=topk)
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :topk]
    np.testing.assert_array_equal(found.cpu().numpy(), expected)


def test_what_does_not_fit_is_refused(to_device: Move) -> None:
    gathered = to_device(np.zeros((2, 12, 2), np.float32))
    for topk in (0, -4, 3, 8):
        with pytest.raises(BindingError, match="a power of two to select"):
            stable_topk_triton(gathered, topk=topk)
    with pytest.raises(BindingError, match="a power of two to select"):
        stable_topk_triton(gathered[:, :0], topk=4)
    whole = to_device(np.zeros(100, np.float32))
    for bad in (
        gathered.double(),
        to_device(np.zeros((2, 12, 3), np.float32)),
        gathered[..., 0],
        to_device(np.zeros((2, 12, 4), np.float32))[..., ::2],
        to_device(np.zeros((2, 25), np.float32))[:, :24].unflatten(1, (12, 2)),
        whole[1:49].view(2, 12, 2),
    ):
        with pytest.raises(BindingError, match="whole pairs"):
            stable_topk_triton(bad, topk=4)
    for out in ((2, 8), (3, 4), (2,)):
        with pytest.raises(BindingError, match="whole rows"):
            stable_topk_triton(gathered, topk=4, out=to_device(np.zeros(out, np.int32)))
    with pytest.raises(BindingError, match="whole rows"):
        stable_topk_triton(gathered, topk=4, out=to_device(np.zeros((2, 4), np.int64)))
    with pytest.raises(BindingError, match="whole rows"):
        stable_topk_triton(gathered, topk=4, out=to_device(np.zeros((2, 8), np.int32))[:, ::2])


def test_sets_ignore_the_order_and_count_what_is_there_twice() -> None:
    assert_same_sets(np.array([[3, -1, 5, 5]]), np.array([[5, 3, 5, -1]]))
    with pytest.raises(AssertionError):
        assert_same_sets(np.array([[3, 3, 5, -1]]), np.array([[3, 5, 5, -1]]))
