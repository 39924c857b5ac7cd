"""CorrectAttnCPOut against numpy in float64.

Tolerances: the merged lse 1e-5 (relative and absolute) and float32 outputs 2e-5 relative, for
float32 exp and log of sums of up to 8 terms; float16 outputs 1e-3 relative and bfloat16 8e-3, one
rounding each. Two units in the last place of the largest lse come on top. Zeros, infinities and
NaN have to be exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from references_correct_attn_cp_out import correct_attn_cp_out as reference
from references_correct_attn_cp_out import mask_empty_shards as mask_reference

from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.correct_attn_cp_out import (
    correct_attn_cp_out,
    mask_empty_shards,
    squeeze_gathered,
)

Move = Callable[..., torch.Tensor]

RELATIVE = {torch.float32: 2e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
# Where numpy itself works inside the interpreter it warns of log(0) and 0 * inf, which are meant.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def random_case(
    rng: np.random.Generator, tokens: int, heads: int, dim: int, ranks: int, *, special: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    outputs = rng.standard_normal((tokens, heads, dim)).astype(np.float32)
    lses = (rng.standard_normal((ranks, tokens, heads)) * 4).astype(np.float32)
    if special:
        odd = rng.random(lses.shape) < 0.3
        lses[odd] = rng.choice(np.array([np.nan, np.inf, -np.inf], np.float32), odd.sum())
    return outputs, lses


def check(
    case: Any,
    to_device: Move,
    poison: Move,
    index: int,
    *,
    base_e: bool = True,
    dtype: torch.dtype = torch.float32,
    in_place: bool = False,
) -> None:
    outputs, lses = to_device(case[0], dtype), to_device(case[1])
    exact_outputs = outputs.float().cpu().numpy()
    expected, expected_lse = reference(exact_outputs, case[1], index, is_base_e=base_e)
    new = None if in_place else poison(torch.empty_like(outputs))
    vlse = poison(torch.empty_like(lses[0]))
    result, merged = correct_attn_cp_out(
        outputs, lses, index, is_base_e=base_e, new_output=new, vlse=vlse
    )
    assert merged is vlse
    written: Any = outputs if in_place else new
    assert written is result
    if not in_place:
        np.testing.assert_array_equal(outputs.float().cpu().numpy(), exact_outputs)
    np.testing.assert_allclose(merged.cpu().numpy(), expected_lse, rtol=1e-5, atol=1e-5)
    found = result.float().cpu().numpy()
    largest = np.abs(case[1], where=np.isfinite(case[1]), out=np.zeros_like(case[1])).max(initial=0)
    relative = RELATIVE[dtype] + 2.0**-22 * float(largest)  # an lse is float32, and f is its exp
    # A product below the smallest number of the output dtype may round either way.
    tiny = float(torch.finfo(dtype).tiny)
    np.testing.assert_allclose(found, expected, rtol=relative, atol=tiny)
    assert (found[expected == 0.0] == 0.0).all()


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("base_e", [True, False])
def test_every_rank(
    rng: np.random.Generator, to_device: Move, poison: Move, ranks: int, base_e: bool
) -> None:
    case = random_case(rng, 3, 4, 16, ranks)
    for index in range(ranks):
        check(case, to_device, poison, index, base_e=base_e)


@pytest.mark.parametrize("tokens", [0, 1, 15, 16, 17])
@pytest.mark.parametrize("heads", [1, 2, 8, 16])
def test_batch_sizes(
    rng: np.random.Generator, to_device: Move, poison: Move, tokens: int, heads: int
) -> None:
    check(random_case(rng, tokens, heads, 8, 2), to_device, poison, 1)


@pytest.mark.parametrize("dim", [1, 2, 64, 512])
def test_head_dims(rng: np.random.Generator, to_device: Move, poison: Move, dim: int) -> None:
    check(random_case(rng, 2, 2, dim, 4), to_device, poison, 2)


@pytest.mark.parametrize("in_place", [True, False])
def test_half_precision_rounds_once(
    rng: np.random.Generator, to_device: Move, poison: Move, in_place: bool
) -> None:
    case = random_case(rng, 4, 4, 32, 4)
    check(case, to_device, poison, 3, dtype=torch.float16, in_place=in_place)
    outputs, lses = to_device(case[0], torch.float16), to_device(case[1])
    wide, _ = correct_attn_cp_out(outputs.float(), lses, 3)
    narrow, _ = correct_attn_cp_out(outputs, lses, 3)
    assert torch.equal(wide.half(), narrow)


@pytest.mark.gpu
@pytest.mark.parametrize("base_e", [True, False])
def test_bfloat16(rng: np.random.Generator, to_device: Move, poison: Move, base_e: bool) -> None:
    case = random_case(rng, 5, 8, 512, 8)
    check(case, to_device, poison, 6, base_e=base_e, dtype=torch.bfloat16)
    check(case, to_device, poison, 0, base_e=base_e, dtype=torch.bfloat16, in_place=True)


@pytest.mark.parametrize("base_e", [True, False])
def test_rows_without_any_context(to_device: Move, poison: Move, base_e: bool) -> None:
    """All shards empty: lse is -inf and the output exactly 0, even where it held NaN."""
    outputs = np.full((2, 2, 4), np.nan, np.float32)
    lses = np.full((4, 2, 2), -np.inf, np.float32)
    lses[1, 1, 0], lses[2, 1, 1] = np.nan, np.inf  # unusable shards are empty ones
    check((outputs, lses), to_device, poison, 2, base_e=base_e)
    result, merged = correct_attn_cp_out(to_device(outputs), to_device(lses), 2, is_base_e=base_e)
    assert torch.equal(result, torch.zeros_like(result)) and merged.eq(-torch.inf).all()


def test_an_empty_shard_leaves_exactly_zero(to_device: Move) -> None:
    outputs = np.array([[[np.nan, np.inf, -np.inf, 1.0]]], np.float32)
    lses = np.array([[[-np.inf]], [[3.0]]], np.float32)
    result, merged = correct_attn_cp_out(to_device(outputs), to_device(lses), 0)
    assert result.tolist() == [[[0.0, 0.0, 0.0, 0.0]]] and merged.item() == 3.0


def test_nan_of_a_shard_with_context_is_not_hidden(to_device: Move) -> None:
    outputs = np.full((1, 1, 2), np.nan, np.float32)
    result, _ = correct_attn_cp_out(
        to_device(outputs), to_device(np.zeros((2, 1, 1), np.float32)), 1
    )
    assert result.isnan().all()


def test_large_and_far_apart_lses(to_device: Move, poison: Move) -> None:
    """No overflow: the largest is taken out before exp."""
    lses = np.array([[[1e4, -1e4]], [[1e4 - 1, 0.0]]], np.float32)
    for index in (0, 1):
        check((np.ones((1, 2, 4), np.float32), lses), to_device, poison, index)


def test_the_ranks_add_up_to_the_whole_attention(rng: np.random.Generator, to_device: Move) -> None:
    """Softmax attention over 40 keys, cut into 4 shards, corrected and summed."""
    scores = rng.standard_normal((3, 2, 40)).astype(np.float32)
    values = rng.standard_normal((40, 8)).astype(np.float32)
    whole = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True) @ values
    shards = np.split(np.arange(40), [0, 9, 30])  # the first shard is empty
    with np.errstate(divide="ignore"):
        lses = np.stack([np.log(np.exp(scores[..., s]).sum(-1)) for s in shards])
    total = torch.zeros(3, 2, 8)
    for rank, shard in enumerate(shards):
        part = np.exp(scores[..., shard] - lses[rank][..., None]) @ values[shard]
        corrected, _ = correct_attn_cp_out(
            to_device(part.astype(np.float32)), to_device(lses.astype(np.float32)), rank
        )
        total += corrected.cpu()
    np.testing.assert_allclose(total.numpy(), whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("offset", [1, 2, 4])
def test_slices_at_any_offset(
    rng: np.random.Generator, at_offset: Move, poison: Move, offset: int
) -> None:
    case = random_case(rng, 3, 3, 8, 4)
    check(case, lambda v, dtype=None: at_offset(v, offset, dtype), poison, 3, in_place=True)


def test_vlse_takes_the_strides_of_the_lses(rng: np.random.Generator, to_device: Move) -> None:
    outputs, lses = random_case(rng, 5, 3, 4, 2)
    expected, expected_lse = reference(outputs, lses, 1, is_base_e=True)
    turned = to_device(lses.transpose(0, 2, 1)).permute(0, 2, 1)  # head-major
    result, merged = correct_attn_cp_out(to_device(outputs), turned, 1)
    assert merged.stride() == turned.stride()[1:] == (1, 5)
    np.testing.assert_allclose(merged.cpu().numpy(), expected_lse, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result.cpu().numpy(), expected, rtol=2e-5)


def test_strided_outputs(rng: np.random.Generator, to_device: Move) -> None:
    outputs, lses = random_case(rng, 4, 2, 8, 2)
    turned = to_device(outputs.transpose(1, 2, 0)).permute(2, 0, 1)  # strides (1, 32, 4)
    expected, _ = reference(outputs, lses, 0, is_base_e=True)
    result, _ = correct_attn_cp_out(turned, to_device(lses), 0)
    np.testing.assert_allclose(result.cpu().numpy(), expected, rtol=2e-5)


def test_extra_dimensions_are_squeezed(to_device: Move) -> None:
    outputs = to_device(np.zeros((3, 1, 2, 4), np.float32))
    for shape in ((5, 3, 2, 1), (5, 1, 3, 2), (5, 3, 2)):
        flat, lses = squeeze_gathered(outputs, to_device(np.zeros(shape, np.float32)))
        assert flat.shape == (3, 2, 4) and lses.shape == (5, 3, 2)
        assert flat.data_ptr() == outputs.data_ptr()


@pytest.mark.parametrize(
    ("starts", "lens"),
    [
        ([0, 1, 3, 3, 5], [4, 0, 0, 7]),
        ([0, 5], [0]),
        ([0, 2, 2, 4], [1, 0, 2]),
        ([0], []),
        ([0, 0, 7], [0, 3]),
    ],
)
def test_rows_of_empty_shards_are_masked(
    rng: np.random.Generator, to_device: Move, starts: list[int], lens: list[int]
) -> None:
    lse = rng.standard_normal((7, 2)).astype(np.float32)
    masked = mask_empty_shards(
        to_device(lse),
        seq_lens=to_device(np.array(lens, np.int32)),
        query_start_loc=to_device(np.array(starts, np.int32)),
    )
    np.testing.assert_array_equal(masked.cpu().numpy(), mask_reference(lse, starts, lens))


def test_masking_needs_both_or_none(to_device: Move) -> None:
    lse = to_device(np.zeros((2, 2), np.float32))
    assert mask_empty_shards(lse) is lse
    with pytest.raises(BindingError, match="together"):
        mask_empty_shards(lse, seq_lens=to_device(np.zeros(1, np.int32)))


def test_what_does_not_fit_is_refused(to_device: Move) -> None:
    def zeros(*shape: int) -> torch.Tensor:
        return to_device(np.zeros(shape, np.float32))

    with pytest.raises(BindingError, match="head_dim must be a power of two, not 3"):
        correct_attn_cp_out(zeros(1, 1, 3), zeros(2, 1, 1), 0)
    with pytest.raises(BindingError, match="ranks must be a power of two, not 3"):
        correct_attn_cp_out(zeros(1, 1, 4), zeros(3, 1, 1), 0)
    with pytest.raises(BindingError, match="lse_idx 2 is not one of 2"):
        correct_attn_cp_out(zeros(1, 1, 4), zeros(2, 1, 1), 2)
    with pytest.raises(BindingError, match="strides"):
        correct_attn_cp_out(zeros(2, 1, 4), zeros(2, 1, 1), 0)
    with pytest.raises(BindingError, match="strides"):
        correct_attn_cp_out(zeros(2, 3, 4), zeros(2, 2, 3), 0, vlse=zeros(3, 2).T)
