"""ComputeDSparkNoncausalSWAIndices against a token-by-token reference: exact, every entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_compute_dspark_noncausal_swa_indices import dspark_reference

from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.compute_dspark_noncausal_swa_indices import (
    compute_dspark_noncausal_swa_indices,
)

Move = Callable[..., torch.Tensor]
SPARE = 2  # rows that the outputs hold beyond the tokens


class Batch:
    """Draft blocks: contexts, a block of tokens each, a table of shuffled cache blocks."""

    def __init__(
        self,
        rng: np.random.Generator,
        queries: list[int],
        *,
        contexts: list[int] | None = None,
        block_size: int = 16,
        window: int = 32,
        spec: int = 7,
        padding: int = 0,
    ) -> None:
        requests = len(queries)
        contexts = contexts or rng.integers(0, 200, requests).tolist()
        self.window, self.block_size, self.spec = window, block_size, spec
        self.query_start_loc = np.cumsum([0, *queries]).astype(np.int32)
        self.seq_lens = np.array(contexts, np.int32) + np.array(queries, np.int32)
        tokens = int(self.query_start_loc[-1])
        self.tokens = tokens + padding
        # A padding token names a request that is not there: it must not be looked at.
        self.token_to_req = np.full(self.tokens, 2**31 - 1, np.int32)
        self.token_to_req[:tokens] = np.repeat(np.arange(requests, dtype=np.int32), queries)
        self.is_valid_token = np.arange(self.tokens) < tokens
        columns = int(self.seq_lens.max(initial=0)) // block_size + 1
        numbers = rng.permutation((requests + 2) * (columns + 3)).astype(np.int32)
        self.block_table = numbers.reshape(requests + 2, -1)

    def arrays(self) -> tuple[np.ndarray, ...]:
        return (
            self.token_to_req,
            self.is_valid_token,
            self.query_start_loc,
            self.seq_lens,
            self.block_table,
        )

    def sizes(self) -> dict[str, int]:
        return {
            "window_size": self.window,
            "num_speculative_tokens": self.spec,
            "block_size": self.block_size,
        }

    def check(
        self,
        move: Move,
        poison: Move,
        untouched: Any,
        *,
        offset: int = 0,
        count: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Launch into larger outputs, compare all of it and return the expected values."""
        count = self.tokens - offset if count is None else count
        expected = dspark_reference(
            *self.arrays(), num_tokens=count, token_offset=offset, **self.sizes()
        )
        width = expected[0].shape[2]
        indices = poison(move(np.zeros((count + SPARE, 1, width), np.int32)))
        lens = poison(move(np.zeros(count + SPARE, np.int32)))
        result = compute_dspark_noncausal_swa_indices(
            *(move_any(move, array) for array in self.arrays()),
            num_tokens=count,
            token_offset=offset,
            **self.sizes(),
            indices=indices,
            lens=lens,
        )
        for found, wanted, buffer in zip(result, expected, (indices, lens), strict=True):
            assert found.data_ptr() == buffer.data_ptr() or not count
            np.testing.assert_array_equal(found.cpu().numpy(), wanted)
            assert untouched(buffer[count:]).all()
        return expected


def move_any(move: Move, array: np.ndarray) -> torch.Tensor:
    """Flags travel as bytes: the guards of `at_offset` hold a pattern that is no bool."""
    if array.dtype != bool:
        return move(array)
    return move(array.astype(np.uint8)).view(torch.bool)


@pytest.mark.parametrize("queries", [[1], [8, 8, 8], [5, 0, 8, 1], [8] * 5], ids=str)
@pytest.mark.parametrize("padding", [0, 3])
def test_batches(
    queries: list[int], padding: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    Batch(rng, queries, padding=padding).check(to_device, poison, untouched)


def test_rows_by_hand(to_device: Move) -> None:
    """A context of 4 and a block of 2, cache blocks of 4, a window of 3; then a padding token."""
    indices, lens = compute_dspark_noncausal_swa_indices(
        to_device([0, 0, 0], torch.int32), to_device([True, True, False]),
        to_device([0, 2], torch.int32), to_device([6], torch.int32),
        to_device([[7, 2]], torch.int32),
        num_tokens=3, token_offset=0, window_size=3, num_speculative_tokens=1, block_size=4,
    )  # fmt: skip
    assert indices.shape == (3, 1, 64) and indices.dtype == lens.dtype == torch.int32
    assert indices[:, 0, :5].tolist() == [[29, 30, 31, 8, 9]] * 2 + [[-1] * 5]
    assert (indices[:, 0, 5:] == -1).all()
    assert lens.tolist() == [5, 5, 0]


def test_all_tokens_of_a_block_see_the_same(
    rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [8, 8], contexts=[3, 150])
    indices, lens = batch.check(to_device, poison, untouched)
    assert (indices[:8] == indices[0]).all() and (indices[8:] == indices[8]).all()
    assert lens.tolist() == [11] * 8 + [40] * 8


@pytest.mark.parametrize(
    ("window", "spec", "width"),
    [
        (128, 1, 192),
        (128, 64, 192),
        (128, 65, 256),
        (128, 0, 128),
        (0, 5, 64),
        (-3, 5, 64),
        (64, -1, 64),
        (63, 1, 64),
        (1000, 60, 1088),
    ],
)
def test_widths(
    window: int, spec: int, width: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [4, 2], contexts=[30, 1900], window=window, spec=spec, block_size=64)
    indices, _ = batch.check(to_device, poison, untouched)
    assert indices.shape == (6, 1, width)


@pytest.mark.parametrize("window", [1, 16, 17, 128])
@pytest.mark.parametrize("block_size", [1, 16, 64, 100])
def test_windows_and_blocks(
    window: int, block_size: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [4, 1, 4], window=window, block_size=block_size, contexts=[0, 150, 14])
    batch.check(to_device, poison, untouched)


@pytest.mark.parametrize(("offset", "count"), [(0, 4), (4, 8), (5, 3), (11, 1), (12, 0)])
def test_offsets(
    offset: int, count: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    Batch(rng, [4, 4, 4]).check(to_device, poison, untouched, offset=offset, count=count)


def test_a_padded_request(rng: Any, to_device: Move, poison: Move, untouched: Any) -> None:
    """A sequence shorter than its query: no context, and the rows that there are."""
    batch = Batch(rng, [3, 4, 2], contexts=[9, 0, 0])
    batch.seq_lens[1:] = 2, 0
    indices, lens = batch.check(to_device, poison, untouched)
    assert lens.tolist() == [12] * 3 + [2] * 4 + [0] * 2
    assert (indices[7:] == -1).all()


def test_tokens_that_are_not_valid(rng: Any, to_device: Move, poison: Move, untouched: Any) -> None:
    batch = Batch(rng, [8, 4])
    batch.is_valid_token[[0, 3, 11]] = False
    batch.token_to_req[[0, 3, 11]] = -1
    _, lens = batch.check(to_device, poison, untouched)
    assert (lens == 0).nonzero()[0].tolist() == [0, 3, 11]
    batch.is_valid_token[:] = False
    indices, lens = batch.check(to_device, poison, untouched)
    assert (indices == -1).all() and not lens.any()


def test_no_requests_and_no_tokens(rng: Any, to_device: Move, poison: Move, untouched: Any) -> None:
    Batch(rng, [], padding=3).check(to_device, poison, untouched)
    Batch(rng, [4]).check(to_device, poison, untouched, count=0)
    case = Batch(rng, [])
    indices, lens = compute_dspark_noncausal_swa_indices(
        *(move_any(to_device, a) for a in case.arrays()),
        num_tokens=0, token_offset=0, **case.sizes(),
    )  # fmt: skip
    assert indices.shape == (0, 1, 64) and lens.shape == (0,)


def test_a_length_beyond_the_width_is_not_clipped(
    rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [10], contexts=[200], window=60, spec=1)
    indices, lens = batch.check(to_device, poison, untouched)
    assert lens.tolist() == [70] * 10
    assert indices.shape[2] == 64 and (indices >= 0).all()


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
def test_slices_of_larger_buffers(
    offset: int, rng: Any, at_offset: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [4, 4, 1], padding=2)
    batch.check(lambda values: at_offset(values, offset), poison, untouched, offset=2)


def test_positions_and_rows_up_to_the_largest_int32(
    rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [3, 2], contexts=[0, 0], block_size=2**26)
    batch.seq_lens[:] = 2**31 - 1, 2**30 + 7
    batch.block_table = np.full((2, 32), 31, np.int32)
    indices, lens = batch.check(to_device, poison, untouched)
    assert indices.max() == 2**31 - 1 and lens.tolist() == [35] * 3 + [34] * 2


@pytest.mark.parametrize("sizes", [(0, 0, 16), (-1, -1, 16), (32, 7, 0)])
def test_sizes_that_do_not_fit_are_refused(
    sizes: tuple[int, int, int], rng: Any, to_device: Move
) -> None:
    case = Batch(rng, [3])
    case.window, case.spec, case.block_size = sizes
    with pytest.raises(BindingError, match="must be 1 or more"):
        compute_dspark_noncausal_swa_indices(
            *(move_any(to_device, a) for a in case.arrays()),
            num_tokens=3, token_offset=0, **case.sizes(),
        )  # fmt: skip


@pytest.mark.parametrize("wrong", ["tokens", "flags", "starts", "table", "dtype", "width"])
def test_tensors_that_do_not_fit_are_refused(wrong: str, rng: Any, to_device: Move) -> None:
    case = Batch(rng, [3, 4])
    batch = [move_any(to_device, a) for a in case.arrays()]
    options: dict[str, Any] = {"num_tokens": 7, "token_offset": 0, **case.sizes()}
    compute_dspark_noncausal_swa_indices(*batch, **options)
    short = {"tokens": 0, "flags": 1, "starts": 2}
    if wrong in short:
        batch[short[wrong]] = batch[short[wrong]][:-1]
    if wrong == "table":
        batch[4] = batch[4][:1]
    if wrong == "dtype":
        batch[3] = batch[3].to(torch.int64)
    if wrong == "width":
        options["indices"] = batch[0].new_empty(7, 1, 32)
    with pytest.raises(BindingError, match="ComputeDSparkNoncausalSWAIndices: 7 tokens from 0"):
        compute_dspark_noncausal_swa_indices(*batch, **options)
