"""PrepareUniformDecode against numpy, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_prepare_uniform_decode import uniform_decode_reference

from jitwarm.errors import JitwarmError
from jitwarm.zoo.kernels.prepare_uniform_decode import prepare_uniform_decode

Move = Callable[..., torch.Tensor]
SPARE = 5  # tokens that the outputs hold beyond the batch


def outputs(place: Move, poison: Move, tokens: int, width: int) -> tuple[torch.Tensor, ...]:
    """The three output buffers, poisoned: sequence lengths, expanded table, decode lengths."""
    shapes = [(tokens + SPARE,), (tokens + SPARE, width), (tokens + SPARE,)]
    return tuple(poison(place(np.zeros(shape, np.int32))) for shape in shapes)


def check(
    seq_lens: np.ndarray,
    table: np.ndarray,
    length: int,
    width: int,
    place: Move,
    poison: Move,
    untouched: Any,
) -> None:
    """Launch with inputs and outputs that `place` makes, and compare every entry of the outputs."""
    tokens = len(seq_lens) * length
    got = outputs(place, poison, tokens, width)
    assert (
        prepare_uniform_decode(place(seq_lens), place(table), *got, tokens_per_request=length)
        == tokens
    )
    for tensor, expected in zip(
        got, uniform_decode_reference(seq_lens, table, width, length), strict=True
    ):
        np.testing.assert_array_equal(tensor[:tokens].cpu().numpy(), expected)
        assert untouched(tensor[tokens:]).all()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 16, 17])
@pytest.mark.parametrize("n_seqs", [1, 2, 7])
def test_tokens_per_request(
    length: int, n_seqs: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    seq_lens = rng.integers(length, 5000, n_seqs).astype(np.int32)
    table = rng.integers(0, 2**31 - 1, (n_seqs + 2, 20), dtype=np.int32)
    check(seq_lens, table, length, 20, to_device, poison, untouched)


@pytest.mark.parametrize(
    ("table_width", "width"),
    [
        (1, 1),
        (2, 1),
        (2, 2),
        (16, 16),
        (17, 16),
        (40, 33),
        (1024, 1024),
        (1030, 1025),
        (2560, 2560),
    ],
)
@pytest.mark.parametrize("length", [1, 3])
def test_widths(
    table_width: int,
    width: int,
    length: int,
    rng: Any,
    to_device: Move,
    poison: Move,
    untouched: Any,
) -> None:
    seq_lens = rng.integers(length, 5000, 3).astype(np.int32)
    table = rng.integers(-1, 2**31 - 1, (3, table_width), dtype=np.int32)
    check(seq_lens, table, length, width, to_device, poison, untouched)


def test_lengths_at_the_edge(rng: Any, to_device: Move, poison: Move, untouched: Any) -> None:
    seq_lens = np.array([0, 1, 2, 3, 4, 5, 0, 2**31 - 1], np.int32)  # 0: a padded request
    table = rng.integers(0, 100, (8, 3), dtype=np.int32)
    check(seq_lens, table, 4, 3, to_device, poison, untouched)


def test_a_known_batch(to_device: Move, poison: Move) -> None:
    got = outputs(to_device, poison, 6, 2)
    seq_lens, table = to_device([7, 0], torch.int32), to_device([[5, 6], [8, 9]], torch.int32)
    prepare_uniform_decode(seq_lens, table, *got, tokens_per_request=3)
    assert got[0][:6].tolist() == [5, 6, 7, 0, 0, 0]
    assert got[1][:6].tolist() == [[5, 6]] * 3 + [[8, 9]] * 3
    assert got[2][:6].tolist() == [1] * 6


def test_no_request(to_device: Move, poison: Move, untouched: Any) -> None:
    check(np.zeros(0, np.int32), np.zeros((0, 4), np.int32), 2, 4, to_device, poison, untouched)


@pytest.mark.parametrize("offset", [1, 3, 4])
def test_slices_of_larger_buffers(
    offset: int, rng: Any, at_offset: Move, poison: Move, untouched: Any
) -> None:
    seq_lens = rng.integers(2, 5000, 5).astype(np.int32)
    table = rng.integers(0, 100, (5, 7), dtype=np.int32)
    check(seq_lens, table, 2, 7, lambda values: at_offset(values, offset), poison, untouched)


def test_a_table_that_is_a_column_slice(rng: Any, to_device: Move, poison: Move) -> None:
    table = rng.integers(0, 100, (3, 24), dtype=np.int32)
    got = outputs(to_device, poison, 6, 9)
    seq_lens = to_device([4, 5, 6], torch.int32)
    prepare_uniform_decode(seq_lens, to_device(table)[:, 3:12], *got, tokens_per_request=2)
    np.testing.assert_array_equal(got[1][:6].cpu().numpy(), np.repeat(table[:, 3:12], 2, axis=0))


def test_outputs_that_just_fit(rng: Any, at_offset: Move) -> None:
    seq_lens, table = np.array([9, 8], np.int32), rng.integers(0, 100, (2, 6), dtype=np.int32)
    got = tuple(at_offset(np.zeros(shape, np.int32), 0) for shape in [(4,), (4, 6), (4,)])
    prepare_uniform_decode(at_offset(seq_lens, 0), at_offset(table, 0), *got, tokens_per_request=2)
    for tensor, expected in zip(got, uniform_decode_reference(seq_lens, table, 6, 2), strict=True):
        np.testing.assert_array_equal(tensor.cpu().numpy(), expected)


@pytest.mark.parametrize(
    "wrong", ["length", "dtype", "requests", "width", "seq-lens", "table", "decode-lens", "strided"]
)
def test_tensors_that_do_not_fit_are_refused(wrong: str, to_device: Move) -> None:
    def zeros(*shape: int) -> torch.Tensor:
        return to_device(np.zeros(shape, np.int32))

    tensors = [zeros(2), zeros(2, 4), zeros(6), zeros(6, 4), zeros(6)]
    changes: dict[str, tuple[int, torch.Tensor]] = {
        "dtype": (0, zeros(2).to(torch.int64)),
        "requests": (1, zeros(1, 4)),
        "width": (1, zeros(2, 3)),
        "seq-lens": (2, zeros(5)),
        "table": (3, zeros(5, 4)),
        "decode-lens": (4, zeros(5)),
        "strided": (3, zeros(6, 5)[:, :4]),
    }
    if wrong in changes:
        index, tensor = changes[wrong]
        tensors[index] = tensor
    with pytest.raises(JitwarmError, match="PrepareUniformDecode: needs"):
        prepare_uniform_decode(*tensors, tokens_per_request=0 if wrong == "length" else 3)
