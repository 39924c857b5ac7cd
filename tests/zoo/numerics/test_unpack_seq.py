"""UnpackSeq against numpy, exactly: it only copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_unpack_seq import unpack_reference

from jitwarm.errors import JitwarmError
from jitwarm.zoo.kernels.pack_seq import MAX_EXTENT, pack_seq
from jitwarm.zoo.kernels.unpack_seq import unpack_seq

RAGGED = [
    pytest.param([3], id="one"),
    pytest.param([0], id="one-empty"),
    pytest.param([1, 1, 1], id="ones"),
    pytest.param([0, 5, 0, 0, 2, 0], id="empty-rows"),
    pytest.param([63, 64, 65], id="around-a-tile"),
    pytest.param([1, 129, 2], id="three-tiles"),
    pytest.param([0, 0, 0], id="all-empty"),
    pytest.param([1, 2, 3] * 45, id="more-requests-than-lanes"),
]
Move = Callable[..., torch.Tensor]


def block(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random int32 of the full range."""
    return rng.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32)


@pytest.mark.parametrize("lengths", RAGGED)
@pytest.mark.parametrize("tail", [(1,), (64,), (65,), (3, 7)], ids=str)
def test_ragged_batches(
    lengths: list[int], tail: tuple[int, ...], rng: Any, to_device: Move, poison: Move
) -> None:
    packed = block(rng, len(lengths), max(lengths), *tail)
    out = poison(to_device(np.empty((sum(lengths), *tail), np.int32)))
    got = unpack_seq(to_device(packed), to_device(lengths, torch.int32), out, total=sum(lengths))
    assert got is out
    np.testing.assert_array_equal(got.cpu().numpy(), unpack_reference(packed, lengths))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int64])
def test_dtypes(dtype: Any, rng: Any, to_device: Move) -> None:
    packed = rng.integers(0, 256, (3, 66, 5)).astype(dtype)
    got = unpack_seq(to_device(packed), to_device([66, 0, 1], torch.int32))
    np.testing.assert_array_equal(got.cpu().numpy(), unpack_reference(packed, [66, 0, 1]))


@pytest.mark.parametrize("seed", range(5))
def test_random_batches_by_default_arguments(seed: int, rng: Any, to_device: Move) -> None:
    lengths = rng.integers(0, 100, rng.integers(1, 9)).tolist()
    packed = block(rng, len(lengths), max(lengths) + seed, int(rng.integers(1, 150)))
    got = unpack_seq(to_device(packed), to_device(lengths, torch.int64))
    np.testing.assert_array_equal(got.cpu().numpy(), unpack_reference(packed, lengths))


def test_unpack_undoes_pack(rng: Any, to_device: Move) -> None:
    lengths = to_device([5, 0, 70, 1], torch.int32)
    x = to_device(block(rng, 76, 9))
    assert torch.equal(unpack_seq(pack_seq(x, lengths, pad_value=-1), lengths), x)


def test_nothing_to_unpack(to_device: Move) -> None:
    none = to_device([], torch.int32)
    assert unpack_seq(to_device(np.ones((0, 4, 2), np.int32)), none).shape == (0, 2)
    assert unpack_seq(to_device(np.ones((0, 0, 2), np.int32)), none).shape == (0, 2)
    assert unpack_seq(to_device(np.ones((2, 0, 2), np.int32)), to_device([0, 0])).shape == (0, 2)
    assert unpack_seq(to_device(np.ones((2, 3, 0), np.int32)), to_device([1, 3])).shape == (4, 0)


@pytest.mark.parametrize("offset", [1, 3, 4, 16])
def test_slices_of_larger_buffers(offset: int, rng: Any, at_offset: Move) -> None:
    lengths = [7, 0, 65]
    packed = block(rng, 3, 65, 5)
    out = at_offset(np.zeros((72, 5), np.int32), offset)
    unpack_seq(at_offset(packed, offset), at_offset(np.array(lengths, np.int32), offset), out)
    np.testing.assert_array_equal(out.cpu().numpy(), unpack_reference(packed, lengths))


def test_a_strided_block_is_read_by_its_strides(rng: Any, to_device: Move) -> None:
    lengths = [2, 5]
    packed = block(rng, 2, 8, 6)
    for view in (
        to_device(packed)[:, :5],
        to_device(packed)[:, :, ::2],
        to_device(packed.swapaxes(1, 2)).mT,
    ):
        assert not view.is_contiguous()
        got = unpack_seq(view, to_device(lengths, torch.int32))
        np.testing.assert_array_equal(
            got.cpu().numpy(), unpack_reference(view.cpu().numpy(), lengths)
        )


def test_wrong_lengths_are_refused_where_they_are_known(to_device: Move) -> None:
    packed = to_device(np.ones((2, 3, 2), np.int32))
    with pytest.raises(ValueError, match="a request has 4 rows, but the block holds 3"):
        unpack_seq(packed, to_device([4, 1], torch.int32))
    with pytest.raises(ValueError, match=r"lengths\[0\] is -2"):
        unpack_seq(packed, to_device([-2, 1], torch.int32))


def test_rows_past_the_block_stay_as_they_were(
    rng: Any, at_offset: Move, poison: Move, untouched: Any
) -> None:
    packed = block(rng, 2, 3, 2)
    out = poison(at_offset(np.zeros((7, 2), np.int32), 0))
    unpack_seq(at_offset(packed, 0), at_offset(np.array([5, 2], np.int32), 0), out)
    assert untouched(out).all(axis=1).tolist() == [False, False, False, True, True, False, False]
    expected = np.concatenate([packed[0], packed[1, :2]])
    np.testing.assert_array_equal(out.cpu().numpy()[[0, 1, 2, 5, 6]], expected)


def test_rows_past_the_output_are_dropped(rng: Any, at_offset: Move) -> None:
    packed = block(rng, 2, 3, 2)
    out = at_offset(np.zeros((4, 2), np.int32), 0)  # its guard sees a write behind it
    unpack_seq(at_offset(packed, 0), at_offset(np.array([3, 3], np.int32), 0), out)
    np.testing.assert_array_equal(out.cpu().numpy(), unpack_reference(packed, [3, 1]))


def test_shapes_that_do_not_fit_are_refused(to_device: Move) -> None:
    packed, lengths = to_device(np.ones((2, 3, 2), np.int32)), to_device([1, 2], torch.int32)
    with pytest.raises(JitwarmError, match="3 or more dimensions"):
        unpack_seq(packed[..., 0], lengths)
    with pytest.raises(JitwarmError, match="3 or more dimensions"):
        unpack_seq(packed, lengths[:1])
    with pytest.raises(JitwarmError, match="out must be a contiguous"):
        unpack_seq(packed, lengths, packed[0], total=4)
    with pytest.raises(JitwarmError, match="out must be a contiguous"):
        unpack_seq(packed, lengths, packed[0].to(torch.int64))
    with pytest.raises(JitwarmError, match="a strided"):
        unpack_seq(packed, lengths, packed[0].T.contiguous().T)
    with pytest.raises(JitwarmError, match="must not exceed"):
        unpack_seq(packed.new_empty(0, MAX_EXTENT + 1, 2), lengths[:0])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_bfloat16_and_8_bit_floats(dtype: torch.dtype, rng: Any, to_device: Move) -> None:
    packed = to_device(rng.standard_normal((3, 66, 5)).astype(np.float32)).to(dtype)
    got = unpack_seq(packed, to_device([66, 0, 1], torch.int32)).float().cpu().numpy()
    np.testing.assert_array_equal(got, unpack_reference(packed.float().cpu().numpy(), [66, 0, 1]))
