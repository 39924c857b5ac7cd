"""ComputePrefillMetadata against a plain reference:

exact, and nothing written past the requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_compute_prefill_metadata import compute_prefill_metadata as reference

from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.compute_prefill_metadata import compute_prefill_metadata

Move = Callable[..., torch.Tensor]
Untouched = Callable[[torch.Tensor], np.ndarray]

SPARE = 3  # entries that the output holds beyond the requests


def random_case(
    rng: np.random.Generator, decodes: int, prefills: int, *, replay: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lengths of decode requests first; some prefill requests are padding, shorter than their
    query.
    """
    requests = decodes + prefills
    query_lens = np.where(np.arange(requests) < decodes, 1, rng.integers(0, 40, requests))
    contexts = rng.integers(-3, 300, requests)
    seq_lens = np.maximum(query_lens + contexts, 0).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(query_lens)]).astype(np.int32)
    replayed = rng.integers(0, 320, requests) if replay else np.zeros(requests)
    return seq_lens, starts, replayed.astype(np.int32)


def check(
    case: Any, decodes: int, to_device: Move, poison: Move, untouched: Untouched, window: int = 128
) -> None:
    prefills = len(case[0]) - decodes
    lens = poison(to_device(np.zeros(prefills + SPARE, np.int32)))
    seq_lens, starts, replay = case
    result = compute_prefill_metadata(
        to_device(seq_lens),
        to_device(starts),
        to_device(replay),
        prefills,
        decodes,
        window,
        gather_lens=lens,
    )
    assert result is lens
    expected = reference(seq_lens, starts, replay, decodes, window)
    np.testing.assert_array_equal(lens[:prefills].cpu().numpy(), expected)
    assert untouched(lens[prefills:]).all()


@pytest.mark.parametrize("prefills", [1, 2, 3, 8, 9, 15, 16, 17, 64, 100])
@pytest.mark.parametrize("decodes", [0, 1, 15, 16, 17])
def test_request_counts(
    rng: np.random.Generator,
    to_device: Move,
    poison: Move,
    untouched: Untouched,
    prefills: int,
    decodes: int,
) -> None:
    check(random_case(rng, decodes, prefills), decodes, to_device, poison, untouched)


@pytest.mark.parametrize("window", [1, 2, 16, 17, 128, 4096])
@pytest.mark.parametrize("replay", [False, True])
def test_windows(
    rng: np.random.Generator,
    to_device: Move,
    poison: Move,
    untouched: Untouched,
    window: int,
    replay: bool,
) -> None:
    case = random_case(rng, 2, 33, replay=replay)
    check(case, 2, to_device, poison, untouched, window)


@pytest.mark.parametrize("query", [0, 1, 15, 16, 17])
@pytest.mark.parametrize("seq_len", [0, 1, 15, 16, 17, 200])
def test_lengths(
    to_device: Move, poison: Move, untouched: Untouched, query: int, seq_len: int
) -> None:
    """A sequence shorter than its query is padding and has no context."""
    case = [np.array(v, np.int32) for v in ([9, seq_len], [0, 1, 1 + query], [0, 3])]
    check(case, 1, to_device, poison, untouched, 16)


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
def test_slices_of_larger_buffers(
    rng: np.random.Generator, at_offset: Move, poison: Move, untouched: Untouched, offset: int
) -> None:
    case = random_case(rng, 3, 10)
    check(case, 3, lambda values: at_offset(values, offset), poison, untouched)


def test_buffers_longer_than_the_batch(rng: np.random.Generator, to_device: Move) -> None:
    seq_lens, starts, replay = random_case(rng, 4, 5)
    longer = [np.concatenate([v, np.full(20, 12345, np.int32)]) for v in (seq_lens, starts, replay)]
    result = compute_prefill_metadata(*map(to_device, longer), 5, 4, 64)
    assert result.shape == (5,) and result.dtype == torch.int32
    expected = reference(seq_lens, starts, replay, 4, 64)
    np.testing.assert_array_equal(result.cpu().numpy(), expected)


def test_what_does_not_fit_is_refused(rng: np.random.Generator, to_device: Move) -> None:
    seq_lens, starts, replay = map(to_device, random_case(rng, 1, 2))
    with pytest.raises(BindingError, match="needs a prefill request"):
        compute_prefill_metadata(seq_lens, starts, replay, 0, 3, 16)
    for bad in (
        (seq_lens[:2], starts, replay),
        (seq_lens, starts[:3], replay),
        (seq_lens, starts, replay[:2]),
    ):
        with pytest.raises(BindingError, match="entries of"):
            compute_prefill_metadata(*bad, 2, 1, 16)
