"""PackSeq against numpy, exactly: it only copies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_pack_seq import pack_reference

from jitwarm.errors import JitwarmError
from jitwarm.zoo.kernels.pack_seq import MAX_EXTENT, pack_seq

RAGGED = [
    pytest.param([3], id="one"),
    pytest.param([0], id="one-empty"),
    pytest.param([1, 1, 1], id="ones"),
    pytest.param([0, 5, 0, 0, 2, 0], id="empty-rows"),
    pytest.param([63, 64, 65], id="around-a-tile"),
    pytest.param([1, 129, 2], id="three-tiles"),
    pytest.param([0, 0, 0], id="all-empty"),
    pytest.param(
        [1, 2, 3] * 45, id="more-requests-than-lanes"
    ),  # 135: the prefix sum takes two steps
]
PADS = [
    pytest.param(torch.float32, -math.inf, id="float32"),
    pytest.param(torch.float16, -math.inf, id="float16"),
    pytest.param(torch.float32, 0.5, id="float32-finite"),
    pytest.param(torch.float32, 0, id="float32-int-pad"),
    pytest.param(torch.int32, -1, id="int32"),
    pytest.param(torch.int64, -(2**24), id="int64"),
    pytest.param(torch.uint8, 0, id="uint8-0"),
    pytest.param(torch.uint8, 255, id="uint8-255"),
]
Move = Callable[..., torch.Tensor]


def rows(rng: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> np.ndarray:
    """Random rows; whole numbers of the dtype's full range, so that a rounding anywhere shows."""
    numpy_dtype = np.dtype(str(dtype).removeprefix("torch."))
    if numpy_dtype.kind == "f":
        return rng.standard_normal(shape).astype(numpy_dtype)
    limits = np.iinfo(numpy_dtype)
    return rng.integers(limits.min, limits.max, shape, dtype=numpy_dtype, endpoint=True)


@pytest.mark.parametrize("lengths", RAGGED)
@pytest.mark.parametrize("tail", [(1,), (64,), (65,), (3, 7)], ids=str)
def test_ragged_batches(
    lengths: list[int], tail: tuple[int, ...], rng: Any, to_device: Move, poison: Move
) -> None:
    x = rows(rng, (sum(lengths), *tail), torch.float32)
    max_len = max(lengths)
    out = poison(to_device(np.empty((len(lengths), max_len, *tail), np.float32)))
    got = pack_seq(to_device(x), to_device(lengths, torch.int32), out, max_len=max_len)
    assert got is out
    np.testing.assert_array_equal(got.cpu().numpy(), pack_reference(x, lengths, max_len, -np.inf))


@pytest.mark.parametrize(("dtype", "pad"), PADS)
def test_dtypes_and_pads(
    dtype: torch.dtype, pad: float, rng: Any, to_device: Move, poison: Move
) -> None:
    lengths = [2, 0, 66, 1]
    x = rows(rng, (69, 5), dtype)
    out = poison(to_device(np.empty((4, 66, 5), x.dtype)))
    pack_seq(to_device(x), to_device(lengths, torch.int32), out, pad_value=pad)
    np.testing.assert_array_equal(out.cpu().numpy(), pack_reference(x, lengths, 66, pad))


@pytest.mark.parametrize("seed", range(5))
def test_random_batches_by_default_arguments(seed: int, rng: Any, to_device: Move) -> None:
    lengths = rng.integers(0, 100, rng.integers(1, 9)).tolist()
    x = rows(rng, (sum(lengths), int(rng.integers(1, 150))), torch.float16)
    got = pack_seq(to_device(x), to_device(lengths, torch.int64))
    assert got.dtype == torch.float16
    np.testing.assert_array_equal(
        got.cpu().numpy(), pack_reference(x, lengths, max(lengths), -np.inf)
    )


def test_no_request(to_device: Move) -> None:
    x, none = to_device(np.ones((4, 8), np.float32)), to_device([], torch.int32)
    assert pack_seq(x, none).shape == (0, 0, 8)
    assert pack_seq(x, none, max_len=3).shape == (0, 3, 8)


def test_rows_without_elements(to_device: Move) -> None:
    assert pack_seq(
        to_device(np.ones((4, 0), np.float32)), to_device([1, 3], torch.int32)
    ).shape == (2, 3, 0)


def test_no_rows_at_all_but_a_block(to_device: Move) -> None:
    got = pack_seq(
        to_device(np.ones((0, 3), np.float32)), to_device([0, 0], torch.int32), max_len=2
    )
    assert got.shape == (2, 2, 3)
    assert torch.isneginf(got).all()


def test_a_block_taller_or_lower_than_the_longest_request(rng: Any, to_device: Move) -> None:
    lengths = [4, 0, 9]
    x = rows(rng, (13, 6), torch.float32)
    for max_len in (12, 7, 1):
        got = pack_seq(to_device(x), to_device(lengths, torch.int32), max_len=max_len)
        np.testing.assert_array_equal(
            got.cpu().numpy(), pack_reference(x, lengths, max_len, -np.inf)
        )


def test_rows_behind_the_batch_are_not_read_into_it(rng: Any, to_device: Move) -> None:
    x = rows(rng, (20, 6), torch.float32)
    got = pack_seq(to_device(x), to_device([4, 5], torch.int32))
    np.testing.assert_array_equal(got.cpu().numpy(), pack_reference(x, [4, 5], 5, -np.inf))


@pytest.mark.parametrize("offset", [1, 3, 4, 16])
def test_slices_of_larger_buffers(offset: int, rng: Any, at_offset: Move) -> None:
    lengths = [7, 0, 65]
    x = rows(rng, (72, 5), torch.float32)
    out = at_offset(np.zeros((3, 65, 5), np.float32), offset)
    pack_seq(at_offset(x, offset), at_offset(np.array(lengths, np.int32), offset), out)
    np.testing.assert_array_equal(out.cpu().numpy(), pack_reference(x, lengths, 65, -np.inf))


def test_a_strided_x_is_read_by_its_strides(rng: Any, to_device: Move) -> None:
    lengths = [2, 5]
    x = rows(rng, (7, 12), torch.float32)
    for view in (to_device(x.T).T, to_device(x)[:, ::2], to_device(np.repeat(x, 2, axis=0))[::2]):
        assert not view.is_contiguous()
        got = pack_seq(view, to_device(lengths, torch.int32))
        expected = pack_reference(view.cpu().numpy(), lengths, 5, -np.inf)
        np.testing.assert_array_equal(got.cpu().numpy(), expected)


def test_strided_lengths_are_read_by_their_strides(rng: Any, to_device: Move) -> None:
    x = rows(rng, (7, 3), torch.float32)
    got = pack_seq(to_device(x), to_device([2, 99, 5, 99], torch.int32)[::2], max_len=5)
    np.testing.assert_array_equal(got.cpu().numpy(), pack_reference(x, [2, 5], 5, -np.inf))


def test_lengths_that_do_not_fit_x_are_refused_where_they_are_known(to_device: Move) -> None:
    x = to_device(np.ones((4, 2), np.float32))
    with pytest.raises(ValueError, match="add up to 5 rows, but x has 4"):
        pack_seq(x, to_device([2, 3], torch.int32))
    with pytest.raises(ValueError, match="add up to 5 rows, but x has 4"):
        pack_seq(x, to_device([2, 3], torch.int32), max_len=3, total=5)
    with pytest.raises(ValueError, match=r"lengths\[1\] is -1"):
        pack_seq(x, to_device([2, -1], torch.int32))


def test_lengths_that_do_not_fit_x_give_padding_where_they_are_not_known(
    rng: Any, at_offset: Move
) -> None:
    x = rows(rng, (4, 2), torch.float32)
    got = pack_seq(at_offset(x, 0), at_offset(np.array([3, 3], np.int32), 0), max_len=3)
    expected = pack_reference(x, [3, 1], 3, -np.inf)
    np.testing.assert_array_equal(got.cpu().numpy(), expected)


@pytest.mark.parametrize("pad", [256, -1, 0.0, True, -math.inf, None])
def test_a_pad_that_is_no_byte_is_refused_for_uint8(pad: Any, to_device: Move) -> None:
    with pytest.raises(JitwarmError, match="pass an int in 0"):
        pack_seq(to_device(np.zeros((1, 1), np.uint8)), to_device([1], torch.int32), pad_value=pad)


@pytest.mark.parametrize(
    ("dtype", "pad"),
    [
        (torch.int32, -math.inf),
        (torch.int32, 0.5),
        (torch.int64, 2**24 + 2),
        (torch.int8, 128),
        (torch.bool, 0),
    ],
)
def test_a_pad_that_the_dtype_cannot_hold_is_refused(
    dtype: torch.dtype, pad: float, to_device: Move
) -> None:
    with pytest.raises(JitwarmError, match="PackSeq"):
        pack_seq(to_device([[0]], dtype), to_device([1], torch.int32), pad_value=pad)


def test_shapes_that_do_not_fit_are_refused(to_device: Move) -> None:
    x, lengths = to_device(np.ones((4, 2), np.float32)), to_device([4], torch.int32)
    with pytest.raises(JitwarmError, match="2 or more dimensions"):
        pack_seq(x[:, 0], lengths)
    with pytest.raises(JitwarmError, match="2 or more dimensions"):
        pack_seq(x, lengths[None])
    with pytest.raises(JitwarmError, match="out must be a contiguous"):
        pack_seq(x, lengths, x)
    with pytest.raises(JitwarmError, match="out must be a contiguous"):
        pack_seq(x, lengths, x[None].to(torch.float16))
    with pytest.raises(JitwarmError, match="out must be a contiguous"):
        pack_seq(x, lengths, x[None].clone(), max_len=3)
    with pytest.raises(JitwarmError, match="a strided"):
        pack_seq(x, lengths, x.T.contiguous().T[None])
    with pytest.raises(JitwarmError, match="must not exceed"):
        pack_seq(x[:, :1], to_device([], torch.int32), max_len=MAX_EXTENT + 1)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_bfloat16_and_8_bit_floats(dtype: torch.dtype, rng: Any, to_device: Move) -> None:
    lengths = [2, 0, 66, 1]
    x = to_device(rows(rng, (69, 5), torch.float32)).to(dtype)
    got = pack_seq(x, to_device(lengths, torch.int32)).float().cpu().numpy()
    expected = pack_reference(x.float().cpu().numpy(), lengths, 66, -np.inf)
    if dtype.itemsize == 1:  # -inf saturates on some hardware: only the rows are promised
        got[np.isneginf(expected)] = -np.inf
    np.testing.assert_array_equal(got, expected)
