"""ComputeSWAIndicesAndLens against a token-by-token reference: exact, every entry of each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_compute_swa_indices_and_lens import swa_reference

from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.compute_swa_indices_and_lens import compute_swa_indices_and_lens

Move = Callable[..., torch.Tensor]
SPARE = 2  # rows that the outputs hold beyond the tokens


class Batch:
    """A step: contexts, new tokens, a table of shuffled blocks; some tokens are padding."""

    def __init__(
        self,
        rng: np.random.Generator,
        queries: list[int],
        *,
        contexts: list[int] | None = None,
        block_size: int = 16,
        window: int = 32,
        padding: int = 0,
        replay: bool = False,
        ahead: int = 0,
    ) -> None:
        """`ahead` is how many places behind a sequence's end the table still holds."""
        requests = len(queries)
        contexts = contexts or rng.integers(0, 200, requests).tolist()
        self.window, self.block_size = window, block_size
        self.query_start_loc = np.cumsum([0, *queries]).astype(np.int32)
        self.seq_lens = np.array(contexts, np.int32) + np.array(queries, np.int32)
        tokens = int(self.query_start_loc[-1])
        self.tokens = tokens + padding
        # A padding token names a request that is not there: it must not be looked at.
        token_to_req = np.full(self.tokens, 2**31 - 1, np.int32)
        token_to_req[:tokens] = np.repeat(np.arange(requests, dtype=np.int32), queries)
        self.token_to_req = token_to_req
        self.is_valid_token = np.arange(self.tokens) < tokens
        starts = rng.integers(0, 220, requests) if replay else np.zeros(requests)
        self.replay_start = starts.astype(np.int32)
        columns = (int(self.seq_lens.max(initial=0)) + ahead) // block_size + 1
        numbers = rng.permutation((requests + 2) * (columns + 3)).astype(np.int32)
        self.block_table = numbers.reshape(requests + 2, -1)
        self.visible: tuple[np.ndarray, np.ndarray] | None = None

    def arrays(self) -> tuple[np.ndarray, ...]:
        return (
            self.token_to_req,
            self.is_valid_token,
            self.query_start_loc,
            self.seq_lens,
            self.block_table,
            self.replay_start,
        )

    def check(
        self,
        move: Move,
        poison: Move,
        untouched: Any,
        *,
        offset: int = 0,
        count: int | None = None,
        width: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Launch into larger outputs, compare all of it and return the expected values."""
        count = self.tokens - offset if count is None else count
        columns = self.window if width is None else width
        indices = poison(move(np.zeros((count + SPARE, 1, columns), np.int32)))
        lens = poison(move(np.zeros(count + SPARE, np.int32)))
        left, right = self.visible or (None, None)
        result = compute_swa_indices_and_lens(
            *(move_any(move, array) for array in self.arrays()),
            num_tokens=count,
            token_offset=offset,
            window_size=self.window,
            block_size=self.block_size,
            index_width=width,
            left_visible=None if left is None else move(left),
            right_visible=None if right is None else move(right),
            indices=indices,
            lens=lens,
        )
        expected = swa_reference(
            *self.arrays(),
            num_tokens=count,
            token_offset=offset,
            window_size=self.window,
            block_size=self.block_size,
            index_width=columns,
            left_visible=left,
            right_visible=right,
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


@pytest.mark.parametrize(
    "queries", [[1], [1, 1, 1, 1], [5], [0, 3, 0, 0, 1, 0], [17, 1, 30], [40, 40]], ids=str
)
@pytest.mark.parametrize("padding", [0, 3])
def test_batches(
    queries: list[int], padding: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    Batch(rng, queries, padding=padding).check(to_device, poison, untouched)


def test_rows_by_hand(to_device: Move) -> None:
    """A context of 4 and two new tokens, blocks of 4, a window of 3; then a padding token."""
    indices, lens = compute_swa_indices_and_lens(
        to_device([0, 0, 0], torch.int32), to_device([True, True, False]),
        to_device([0, 2], torch.int32), to_device([6], torch.int32),
        to_device([[7, 2]], torch.int32), to_device([0], torch.int32),
        num_tokens=3, token_offset=0, window_size=3, block_size=4, index_width=4,
    )  # fmt: skip
    assert indices.tolist() == [[[30, 31, 8, -1]], [[31, 8, 9, -1]], [[-1, -1, -1, -1]]]
    assert lens.tolist() == [3, 3, 0]
    assert indices.dtype == lens.dtype == torch.int32


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 128])
@pytest.mark.parametrize("block_size", [1, 16, 64, 100])
def test_windows_and_blocks(
    window: int, block_size: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [9, 1, 4], window=window, block_size=block_size, contexts=[0, 150, 14])
    batch.check(to_device, poison, untouched)


@pytest.mark.parametrize("width", [32, 33, 100, 1023, 1024, 1025, 2100])
def test_rows_wider_than_the_window(
    width: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    indices, _ = Batch(rng, [7, 3], padding=1).check(to_device, poison, untouched, width=width)
    assert (indices[:, :, 32:] == -1).all()


@pytest.mark.parametrize("window", [1024, 1025, 3000])
def test_windows_beyond_a_tile(
    window: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [2, 2], window=window, contexts=[2990, 900], block_size=64)
    batch.check(to_device, poison, untouched)


@pytest.mark.parametrize(("offset", "count"), [(0, 4), (4, 20), (5, 19), (23, 1), (24, 0), (7, 2)])
def test_offsets(
    offset: int, count: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    """Four decode rows, then prefill rows."""
    batch = Batch(rng, [1, 1, 1, 1, 13, 7])
    batch.check(to_device, poison, untouched, offset=offset, count=count)


def test_decode_and_prefill_rows_are_those_of_the_whole(rng: Any, to_device: Move) -> None:
    batch = [move_any(to_device, a) for a in Batch(rng, [1, 1, 1, 9, 4]).arrays()]

    def rows(offset: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        return compute_swa_indices_and_lens(
            *batch, num_tokens=count, token_offset=offset, window_size=32, block_size=16
        )

    for part, whole in zip(
        (torch.cat(both) for both in zip(rows(0, 3), rows(3, 13), strict=True)),
        rows(0, 16),
        strict=True,
    ):
        assert torch.equal(part, whole)


@pytest.mark.parametrize("window", [1, 16, 32])
def test_replay_starts(
    window: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    """Above the context, inside the window, and above the token itself."""
    batch = Batch(
        rng, [6, 6, 6, 6, 6, 6], contexts=[100] * 6, window=window, replay=True, padding=1
    )
    batch.replay_start[:] = 0, 60, 90, 100, 103, 2000
    _, lens = batch.check(to_device, poison, untouched)
    assert lens[24:30].tolist() == [min(window, k) for k in (-2, -1, 0, 1, 2, 3)]
    assert (lens[30:36] < 0).all()


def test_a_negative_replay_start_bounds_nothing(
    rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [5, 2], contexts=[0, 90])
    batch.replay_start[:] = -7
    _, lens = batch.check(to_device, poison, untouched)
    assert lens.tolist() == [1, 2, 3, 4, 5, 32, 32]


def test_negative_positions(rng: Any, to_device: Move, poison: Move, untouched: Any) -> None:
    """A valid token of a padded request: the length says so, the row is empty."""
    batch = Batch(rng, [3, 2, 1], contexts=[0, 0, 9])
    batch.seq_lens[:2] = 0, 1
    indices, lens = batch.check(to_device, poison, untouched)
    assert lens.tolist() == [-2, -1, 0, 0, 1, 10]
    assert (indices[:4] == -1).all()


def test_tokens_that_are_not_valid(rng: Any, to_device: Move, poison: Move, untouched: Any) -> None:
    batch = Batch(rng, [20])
    batch.is_valid_token[[0, 3, 4, 19]] = False
    batch.token_to_req[[0, 3, 4, 19]] = -1
    _, lens = batch.check(to_device, poison, untouched)
    assert (lens == 0).nonzero()[0].tolist() == [0, 3, 4, 19]
    batch.is_valid_token[:] = False
    indices, lens = batch.check(to_device, poison, untouched)
    assert (indices == -1).all() and not lens.any()


def test_padding_without_a_request(rng: Any, to_device: Move, poison: Move, untouched: Any) -> None:
    Batch(rng, [], padding=3).check(to_device, poison, untouched)


def test_no_tokens(rng: Any, to_device: Move, poison: Move, untouched: Any) -> None:
    Batch(rng, [4]).check(to_device, poison, untouched, count=0)
    batch = [move_any(to_device, a) for a in Batch(rng, []).arrays()]
    indices, lens = compute_swa_indices_and_lens(
        *batch, num_tokens=0, token_offset=0, window_size=32, block_size=16
    )
    assert indices.shape == (0, 1, 32) and lens.shape == (0,)


def image_counts(tokens: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [first, last) are one image: how many of it come before and after each token."""
    left, right = np.zeros(tokens, np.int32), np.zeros(tokens, np.int32)
    left[first:last] = np.arange(last - first)
    right[first:last] = left[first:last][::-1]
    return left, right


@pytest.mark.parametrize("window", [1, 8, 32])
@pytest.mark.parametrize(("first", "last"), [(0, 30), (3, 10), (5, 6), (10, 10), (29, 30)])
def test_images(
    window: int, first: int, last: int, rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [30, 2], window=window, contexts=[20, 5])
    batch.visible = image_counts(32, first, last)
    _, lens = batch.check(to_device, poison, untouched, width=window + 30)
    seen = batch.seq_lens[0] - 30 + np.arange(30) + batch.visible[1][:30]
    inside = slice(first, last)
    assert (lens[:30] <= window + 30).all()
    # The tokens of an image all see up to its end.
    assert len(set(seen[inside])) <= 1


def test_an_image_starts_in_the_context(
    rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    """All of it is visible again, unless it is below the replay start."""
    for replay in (0, 15, 60):
        batch = Batch(rng, [12], window=4, contexts=[50])
        left, right = image_counts(12 + 40, 0, 52)
        batch.visible = left[40:].copy(), right[40:].copy()
        batch.replay_start[:] = replay
        _, lens = batch.check(to_device, poison, untouched, width=64)
        assert (lens == 62 - max(10, replay)).all()


def test_images_of_prefill_rows_are_read_at_the_token(
    rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [1, 1, 1, 20], window=8, padding=2)
    left, right = rng.integers(0, 15, 25), rng.integers(0, 5, 25)
    batch.visible = left.astype(np.int32), right.astype(np.int32)
    batch.block_table = np.pad(batch.block_table, ((0, 0), (0, 2)), constant_values=77)
    batch.check(to_device, poison, untouched, offset=3, width=24)


def test_a_length_beyond_the_width_is_not_clipped(
    rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [3], window=8, contexts=[40], ahead=10)
    batch.visible = np.array([20, 8, 0], np.int32), np.array([10, 4, 0], np.int32)
    indices, lens = batch.check(to_device, poison, untouched, width=8)
    assert lens.tolist() == [31, 13, 8]
    assert (indices >= 0).all()


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
@pytest.mark.parametrize("images", [False, True])
def test_slices_of_larger_buffers(
    offset: int, images: bool, rng: Any, at_offset: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [1, 1, 9], padding=2, replay=True)
    if images:
        batch.visible = image_counts(13, 3, 9)
    batch.check(lambda values: at_offset(values, offset), poison, untouched, offset=2, width=41)


def test_rows_with_gaps_between_them(rng: Any, to_device: Move, poison: Move) -> None:
    """The left part of wider rows: only the columns have to be side by side."""
    case = Batch(rng, [6])
    wide = poison(to_device(np.zeros((6, 1, 50), np.int32)))
    table = to_device(case.block_table)
    more = torch.cat([table, torch.full_like(table, 2**30)], dim=1)[:, : table.shape[1]]
    batch = [move_any(to_device, a) for a in case.arrays()]
    batch[4] = more
    given = {"num_tokens": 6, "token_offset": 0, "window_size": 32, "block_size": 16}
    before = wide[:, :, 32:].clone()
    compute_swa_indices_and_lens(*batch, **given, indices=wide[:, :, :32])
    indices, _ = compute_swa_indices_and_lens(*batch, **given)
    assert torch.equal(wide[:, :, :32], indices) and torch.equal(wide[:, :, 32:], before)


def test_positions_and_rows_up_to_the_largest_int32(
    rng: Any, to_device: Move, poison: Move, untouched: Any
) -> None:
    batch = Batch(rng, [3, 2], contexts=[0, 0], window=40, block_size=2**26, replay=False)
    batch.seq_lens[:] = 2**31 - 1, 2**30 + 7
    batch.block_table = np.full((2, 32), 31, np.int32)
    batch.replay_start[0] = 2**31 - 20
    indices, lens = batch.check(to_device, poison, untouched)
    assert indices.max() == 2**31 - 1
    assert lens.tolist() == [17, 18, 19, 40, 40]
    batch.block_size, batch.block_table = 2**25 + 2**24, np.full((2, 43), 41, np.int32)
    batch.check(to_device, poison, untouched)


def test_a_table_of_one_column(rng: Any, to_device: Move, poison: Move, untouched: Any) -> None:
    batch = Batch(rng, [2, 2], contexts=[3, 0], block_size=64)
    batch.block_table = np.array([[4], [9]], np.int32)
    batch.check(to_device, poison, untouched)


@pytest.mark.parametrize("sizes", [(0, 16, 32), (32, 0, 32), (32, 16, 0)])
def test_sizes_that_do_not_fit_are_refused(
    sizes: tuple[int, int, int], rng: Any, to_device: Move
) -> None:
    window, block_size, width = sizes
    with pytest.raises(BindingError, match="must be 1 or more"):
        compute_swa_indices_and_lens(
            *(move_any(to_device, a) for a in Batch(rng, [3]).arrays()),
            num_tokens=3, token_offset=0, window_size=window, block_size=block_size,
            index_width=width,
        )  # fmt: skip


def cut(index: int) -> Callable[..., None]:
    def change(batch: list[Any], _: dict[str, Any]) -> None:
        batch[index] = batch[index][:-1]

    return change


def retype(index: int, dtype: torch.dtype) -> Callable[..., None]:
    def change(batch: list[Any], _: dict[str, Any]) -> None:
        batch[index] = batch[index].to(dtype)

    return change


def given(**more: Any) -> Callable[..., None]:
    def change(batch: list[Any], options: dict[str, Any]) -> None:
        options.update(
            {name: value(batch) if callable(value) else value for name, value in more.items()}
        )

    return change


WRONG: dict[str, Callable[..., None]] = {
    "requests-of-tokens": cut(0),
    "flags": cut(1),
    "starts": cut(2),
    "table-rows": cut(4),
    "replay-starts": cut(5),
    "requests-dtype": retype(0, torch.int64),
    "flags-dtype": retype(1, torch.uint8),
    "starts-dtype": retype(2, torch.int64),
    "lens-dtype": retype(3, torch.int64),
    "table-dtype": retype(4, torch.int64),
    "replay-dtype": retype(5, torch.int64),
    "offset": given(token_offset=1),
    "negative-offset": given(token_offset=-1),
    "negative-count": given(num_tokens=-1),
    "left-alone": given(left_visible=lambda b: b[0]),
    "right-alone": given(right_visible=lambda b: b[0]),
    "short-images": given(left_visible=lambda b: b[0], right_visible=lambda b: b[0][:-1]),
    "image-dtype": given(left_visible=lambda b: b[0].long(), right_visible=lambda b: b[0]),
    "indices-rows": given(indices=lambda b: b[0].new_empty(6, 1, 32)),
    "indices-width": given(indices=lambda b: b[0].new_empty(7, 1, 33)),
    "indices-flat": given(indices=lambda b: b[0].new_empty(7, 32)),
    "indices-middle": given(indices=lambda b: b[0].new_empty(7, 2, 32)),
    "indices-dtype": given(indices=lambda b: b[0].new_empty((7, 1, 32), dtype=torch.int64)),
    "indices-gaps": given(indices=lambda b: b[0].new_empty(7, 1, 64)[:, :, ::2]),
    "lens-rows": given(lens=lambda b: b[0].new_empty(6)),
    "lens-gaps": given(lens=lambda b: b[0].new_empty(14)[::2]),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_tensors_that_do_not_fit_are_refused(
    wrong: Callable[..., None], rng: Any, to_device: Move
) -> None:
    case = Batch(rng, [3, 4])
    case.block_table = case.block_table[:2]
    batch = [move_any(to_device, a) for a in case.arrays()]
    options = {"num_tokens": 7, "token_offset": 0, "window_size": 32, "block_size": 16}
    compute_swa_indices_and_lens(*batch, **options)
    wrong(batch, options)
    with pytest.raises(BindingError, match="ComputeSWAIndicesAndLens: "):
        compute_swa_indices_and_lens(*batch, **options)
