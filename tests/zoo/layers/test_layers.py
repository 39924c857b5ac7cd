"""Building blocks of a token on the CPU: shapes, determinism, and a tiny model against float32."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jitwarm.errors import ScenarioError
from jitwarm.traffic import Batch
from jitwarm.zoo.layers.embedding import TokenEmbedding, TokenFeed
from jitwarm.zoo.layers.head import OutputHead
from jitwarm.zoo.layers.norm import RMSNorm
from jitwarm.zoo.layers.weights import SCALED, Scale, Weights

CPU = Weights("cpu")


def test_weights_depend_on_name_seed_and_nothing_else():
    one = CPU.matrix("layers.0.q", 48, 64)
    assert (one.shape, one.dtype) == ((48, 64), torch.bfloat16)
    torch.manual_seed(1)
    assert torch.equal(one, Weights("cpu").matrix("layers.0.q", 48, 64))
    assert not torch.equal(one, CPU.matrix("layers.1.q", 48, 64))
    assert not torch.equal(one, Weights("cpu", seed=1).matrix("layers.0.q", 48, 64))


def test_weights_are_the_same_in_another_process(fresh_process):
    text = (
        "from jitwarm.zoo.layers.weights import Weights\n"
        "print(Weights('cpu').matrix('a', 3, 5).tolist())"
    )
    assert fresh_process(text, PYTHONHASHSEED="7").strip() == str(CPU.matrix("a", 3, 5).tolist())


@pytest.mark.parametrize(
    ("shape", "fan_in", "deviation"),
    [((512, 1024), None, 1 / 32), ((512, 1024), 1, 1.0), ((16, 4096), 16, 0.25)],
)
def test_the_deviation_of_weights_is_one_over_the_root_of_their_fan_in(shape, fan_in, deviation):
    drawn = CPU.matrix("w", *shape, fan_in=fan_in).float()
    assert drawn.std().item() == pytest.approx(deviation, rel=0.02)
    assert abs(drawn.mean().item()) < 0.02 * deviation


def test_gains_are_near_one():
    gain = CPU.gain("norm", 4096).float()
    assert gain.mean().item() == pytest.approx(1, abs=0.02)
    assert gain.std().item() == pytest.approx(0.1, rel=0.1)


@given(st.sampled_from(SCALED), st.integers(1, 64), st.integers(1, 64))
def test_scale_divides_exactly(name, factor, quotient):
    assert Scale(factor)(name, factor * quotient) == quotient


@pytest.mark.parametrize("factor", [0, -1, 5])
def test_a_scale_that_does_not_divide_is_refused(factor):
    with pytest.raises(ScenarioError) as caught:
        Scale(factor, "tiny")("hidden_size", 6144)
    assert str(caught.value) == (
        f"model tiny: $.options.scale: {factor} does not divide hidden_size 6144"
    )


def test_what_kernels_are_compiled_for_is_never_scaled():
    with pytest.raises(ValueError, match=r"head_dim is not scaled: only hidden_size, .* are"):
        Scale(2)("head_dim", 128)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_norm_against_float64(dtype):
    norm = RMSNorm(CPU, "n", 96)
    x = torch.randn(3, 5, 96, generator=torch.Generator().manual_seed(0)).to(dtype) * 7
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.gain.double()
    found = norm(x)
    assert (found.shape, found.dtype) == (x.shape, dtype)
    torch.testing.assert_close(
        found.double(), expected, rtol=2**-8 if dtype is torch.bfloat16 else 1e-6, atol=1e-6
    )
    assert torch.equal(norm(torch.zeros(2, 96)), torch.zeros(2, 96))  # nothing divides by zero


def test_the_embedding_is_a_row_a_token():
    embedding = TokenEmbedding(CPU, "e", 10, 8)
    ids = torch.tensor([3, 3, 9, 0])
    assert torch.equal(embedding(ids), embedding.table[ids])
    assert embedding(ids[:0]).shape == (0, 8)


def test_decodes_read_what_their_row_emitted_and_prompts_are_fixed():
    feed = TokenFeed("cpu", 50, max_num_seqs=4, max_num_tokens=32)
    prefill = Batch((), (3, 2), (0, 0))
    prompt = feed.fill(prefill).clone()
    assert prompt.shape == (5,)
    assert 0 <= prompt.min() <= prompt.max() < 50
    feed.emitted(torch.tensor([41, 42]))
    mixed = Batch((7, 9, 1), (2,), (0,))
    # Row 2 emitted nothing yet.
    assert feed.fill(mixed).tolist() == [41, 42, 0, *feed.prompt[3:5].tolist()]
    feed.emitted(torch.tensor([1, 2, 3, 4]))
    drafts = Batch((7, 9), (), (), padded=1, decode_query_len=2)
    ids = feed.fill(drafts).tolist()
    assert ids[::2] == [1, 2, 3]
    assert ids[1::2] == feed.prompt[1:6:2].tolist()
    assert torch.equal(feed.fill(prefill), prompt)


def test_a_tiny_model_chooses_what_a_float32_reference_chooses():
    vocab, hidden, rows = 512, 256, 200
    embedding, head = TokenEmbedding(CPU, "e", vocab, hidden), OutputHead(CPU, "h", vocab, hidden)
    norm, weight = RMSNorm(CPU, "n", hidden), CPU.matrix("w", hidden, hidden)
    ids = torch.randint(vocab, (3 * rows,), generator=torch.Generator().manual_seed(3))
    last = torch.arange(2, 3 * rows, 3)
    x = embedding(ids)
    tokens = head(x + torch.mm(norm(x), weight.t()), last)
    assert (tokens.shape, tokens.dtype) == ((rows,), torch.int64)

    def normed(x, gain):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain

    wide = embedding.table.float()[ids]
    wide = wide + normed(wide, norm.gain) @ weight.float().T
    scores = normed(wide[last], head.norm.gain) @ head.projection.float().T
    best, second = scores.topk(2).values.T
    clear = best - second > 0.1  # bf16 cannot confuse these
    assert clear.sum() > rows / 2
    assert torch.equal(tokens[clear], scores.argmax(-1)[clear])
    chosen = scores.gather(1, tokens[:, None])[:, 0]
    assert (best - chosen).max() < 0.1
