"""Inkling from token ids to token ids, on this rank: torch around the two kernels.

A layer: norm; projections to queries, keys, values and d_rel numbers a head, which a matrix
[d_rel, extent] turns into the bias of each relative position; keys and values go to the layer's own
paged cache at the slots of ComputeSlotMapping; attention; output projection; residual. Then norm,
output head, argmax.
What differs from the published model: experts, short convolutions and the norm of the embedding
are left out; weights are random; the sum over tensor-parallel ranks keeps this rank's part only;
contexts that traffic takes for computed read what the cache holds, random numbers at first.

Memory in bytes, all bf16: weights of a layer 2*hidden*(2*heads*D + 2*kv*D + heads*d_rel), its cache
4*blocks*block_size*kv*D, embedding and head 4*vocab*hidden. For tp 8 with 32,768 blocks of 16
tokens: 2.2 GB of weights in 66 layers, 4.9 GB in embedding and head, 32.5 GB of cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from jitwarm.config import EngineConfig
from jitwarm.zoo.layers.embedding import TokenEmbedding, TokenFeed
from jitwarm.zoo.layers.head import OutputHead
from jitwarm.zoo.layers.norm import RMSNorm
from jitwarm.zoo.layers.weights import Scale, Weights
from jitwarm.zoo.models.inkling_attention import (
    AttentionBuffers,
    LayerKind,
    StepInputs,
    layer_kinds,
)
from jitwarm.zoo.steps.block_tables import BlockTable
from jitwarm.zoo.steps.paged_slots import give_own_blocks

Attend = Callable[..., object]


class TokenLayer:
    """One layer with its weights and its cache."""

    def __init__(
        self,
        weights: Weights,
        name: str,
        kind: LayerKind,
        attention: AttentionBuffers,
        sizes: tuple[int, int],
    ) -> None:
        """Draw the weights; `sizes` are those of the hidden state and of d_rel."""
        hidden, rel = sizes
        self.kind, self.attention, self.cache = kind, attention, attention.cache(kind)
        self.norm = RMSNorm(weights, f"{name}.norm", hidden)
        width, kv_width = kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
        self.to_queries = weights.matrix(f"{name}.q", width, hidden)
        self.to_kv = weights.matrix(f"{name}.kv", 2 * kv_width, hidden)
        self.to_rel = weights.matrix(f"{name}.rel", kind.heads * rel, hidden)
        self.rel_to_bias = weights.matrix(f"{name}.rel_to_bias", rel, kind.extent, fan_in=rel)
        self.to_output = weights.matrix(f"{name}.o", hidden, width)

    def project(self, hidden: torch.Tensor, slots: torch.Tensor) -> None:
        """From hidden [T, size] to the shared buffers of queries and bias, and into the cache at
        slots int64 [T].
        """
        kind, tokens = self.kind, hidden.shape[0]
        normed = self.norm(hidden)
        queries = self.attention.queries[:tokens].view(tokens, -1)
        torch.mm(normed, self.to_queries.t(), out=queries)
        rel = torch.mm(normed, self.to_rel.t()).view(tokens * kind.heads, -1)
        bias = self.attention.bias(kind, tokens).view(tokens * kind.heads, -1)
        torch.mm(rel, self.rel_to_bias, out=bias)
        both = torch.mm(normed, self.to_kv.t()).view(tokens, 2, kind.kv_heads, kind.head_dim)
        size = self.cache.shape[2]
        rows = self.cache.view(-1, kind.kv_heads, kind.head_dim)
        key_rows = slots + slots.div(size, rounding_mode="floor") * size  # keys, values, keys...
        rows.index_copy_(0, key_rows, both[:, 0])
        rows.index_copy_(0, key_rows + size, both[:, 1])

    def finish(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [T, size] and this rank's part of the attention output."""
        tokens = hidden.shape[0]
        outputs = self.attention.outputs[:tokens].view(tokens, -1)
        return torch.addmm(hidden, outputs, self.to_output.t())


class TokenStack:
    """All layers between the embedding and the output head."""

    def __init__(
        self,
        config: EngineConfig,
        device: str,
        attention: AttentionBuffers,
        tables: Sequence[BlockTable],
        scale: int,
    ) -> None:
        """Draw all weights, allocate a cache for each layer, and give each row of the block tables
        blocks of its own.

        Raises `ScenarioError` for a scale that does not divide what it scales.
        """
        model, limits = config.model_config.hf_config, config.scheduler_config
        scaled, weights = Scale(scale, "inkling"), Weights(device)
        hidden = scaled("hidden_size", model.hidden_size)
        vocab = scaled("vocab_size", model.vocab_size)
        self.attention = attention
        self.embedding = TokenEmbedding(weights, "embedding", vocab, hidden)
        self.layers = [
            TokenLayer(weights, f"layers.{index}", kind, attention, (hidden, model.d_rel))
            for index, kind in enumerate(layer_kinds(config))
        ]
        self.head = OutputHead(weights, "head", vocab, hidden)
        self.feed = TokenFeed(device, vocab, limits.max_num_seqs, limits.max_num_batched_tokens)
        for table in tables:
            give_own_blocks(table.blocks)

    def run(self, step: StepInputs, attend: Attend) -> torch.Tensor:
        """One step: the token int64 [rows] that each row emits, remembered for the next step.

        The slots of the step must be mapped. `attend` is the attention kernel, or what stands for
        it.
        """
        hidden = self.embedding(self.feed.fill(step.batch))
        for layer in self.layers:
            layer.project(hidden, step.slots(layer.kind))
            attend(**self.attention.arguments(layer.kind, step, layer.cache))
            hidden = layer.finish(hidden)
        last = step.buffers.query_start_loc[1 : len(step.batch.query_lens) + 1].long() - 1
        tokens = self.head(hidden, last)
        self.feed.emitted(tokens)
        return tokens

    def rehearse(self, step: StepInputs) -> None:
        """Every torch operator of such a step and no kernel: keys go to any slots, because their
        mapping is a kernel's work, and no row remembers its token.
        """
        for table in step.tables:
            torch.arange(table.slots.shape[0], out=table.slots)
            table.slots.remainder_(table.blocks.numel())
        self.run(step, lambda **_: None)
        self.feed.last.zero_()
