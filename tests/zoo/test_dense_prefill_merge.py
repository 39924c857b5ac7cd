"""Two halves of an attention, merged, are the whole one."""

from __future__ import annotations

import torch

from jitwarm.zoo.steps.dense_prefill import merge


def attention(scores, values):
    """Outputs [T, heads, value] and log-sum-exps [heads, T] of scores [heads, T, keys]."""
    lse = torch.logsumexp(scores, dim=2)
    shares = torch.softmax(scores, dim=2).nan_to_num(0.0)
    return torch.einsum("htk,khv->thv", shares, values), lse


def halves(dtype, empty=()):
    torch.manual_seed(0)
    scores, values = torch.randn(3, 5, 12) * 4, torch.randn(12, 3, 8)
    for token in empty:
        scores[:, token, 7:] = -torch.inf
    whole, _ = attention(scores, values)
    parts = [attention(scores[..., keys], values[keys]) for keys in (slice(7), slice(7, 12))]
    return whole, [(output.to(dtype), lse) for output, lse in parts]


def test_halves_are_the_whole():
    whole, (first, second) = halves(torch.float32)
    torch.testing.assert_close(merge(*first, *second), whole, rtol=1e-5, atol=1e-6)


def test_in_the_dtype_of_the_outputs():
    whole, (first, second) = halves(torch.bfloat16)
    merged = merge(*first, *second)
    assert merged.dtype is torch.bfloat16
    # Each half and the whole are rounded to 8 bits.
    torch.testing.assert_close(merged.float(), whole, rtol=2**-7, atol=2**-7)


def test_what_has_no_keys_is_not_read():
    whole, (first, (output, lse)) = halves(torch.float32, empty=(1, 3))
    assert torch.isneginf(lse[:, [1, 3]]).all()
    output[[1, 3]] = torch.nan
    torch.testing.assert_close(merge(*first, output, lse), whole, rtol=1e-5, atol=1e-6)


def test_a_second_half_that_outweighs_the_first():
    _, (first, (output, _)) = halves(torch.float32)
    lse = first[1] + 200.0
    torch.testing.assert_close(merge(*first, output, lse), output)
