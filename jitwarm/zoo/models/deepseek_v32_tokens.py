"""The token path of DeepSeek-V3.2: token ids to the next token of each request, around the kernels.

What is computed: embedding, and in every layer norms, query, latent and indexer projections, rotary
embedding, writes to the paged caches, index scores and their selection (torch), the attention over
the selected rows (torch) or dense (FA4MLAPrefill), the output projection; then the output head and
argmax. Weights are random bf16 in the real shapes of one tensor-parallel rank. What is left out:
the experts, and the sums over the other ranks.

Bytes at scale 1 and tp 8: 101 MB of weights a layer, 3.7 GB of embedding and head;
2 * (576 + 128) bytes of cache a token and layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from jitwarm.config import EngineConfig
from jitwarm.traffic import Batch
from jitwarm.zoo.layers.embedding import TokenEmbedding, TokenFeed
from jitwarm.zoo.layers.gathered_attention import gathered_attention
from jitwarm.zoo.layers.head import OutputHead
from jitwarm.zoo.layers.index_scores import decode_scores, prefill_scores, select
from jitwarm.zoo.layers.rotary import Rotary
from jitwarm.zoo.layers.sparse_mla import Projected, SparseMLALayer
from jitwarm.zoo.layers.weights import Scale, Weights
from jitwarm.zoo.steps.dense_prefill import DenseBatch, attend_contexts, attend_new, merge
from jitwarm.zoo.steps.indexer_slices import (
    Bounds,
    IndexerSlice,
    indexer_slices,
    made_up_bounds,
)
from jitwarm.zoo.steps.layer_scratch import LayerScratch
from jitwarm.zoo.steps.paged_slots import give_own_blocks, host_slots, row_slots
from jitwarm.zoo.steps.sparse_mla_launches import LayerLaunches
from jitwarm.zoo.steps.step_buffers import ChunkTensors, StepBuffers


@dataclass(frozen=True, slots=True)
class _Step:
    """What all layers of a step share."""

    batch: Batch
    slots: torch.Tensor
    angles: tuple[torch.Tensor, torch.Tensor]
    decode_slots: torch.Tensor
    decode_lens: torch.Tensor
    slices: tuple[IndexerSlice, ...]
    dense: DenseBatch | None
    context_slots: torch.Tensor | None
    # None while the torch operators are set up: no kernel may run then.
    launches: LayerLaunches | None


class DeepSeekV32Tokens:
    """Weights, caches and the forward pass of one rank."""

    def __init__(
        self,
        config: EngineConfig,
        buffers: StepBuffers,
        scratch: LayerScratch,
        heads: int,
        factor: int,
        device: str,
    ) -> None:
        """Draw all weights; `factor` divides hidden size, query rank and vocabulary."""
        model, limits = config.model_config.hf_config, config.scheduler_config
        self.buffers, self.scratch, self.device = buffers, scratch, device
        self.block_size = config.cache_config.block_size
        self.count = model.index_topk
        scale, weights = Scale(factor, "deepseek-v3.2"), Weights(device)
        hidden = scale("hidden_size", model.hidden_size)
        vocab = scale("vocab_size", model.vocab_size)
        give_own_blocks(buffers.block_table)
        self.slot_count = buffers.block_table.numel() * self.block_size
        self.embedding = TokenEmbedding(weights, "embedding", vocab, hidden)
        self.layers = [
            SparseMLALayer(weights, f"layers.{index}", model, heads, scale, self.slot_count)
            for index in range(model.num_hidden_layers)
        ]
        self.head = OutputHead(weights, "head", vocab, hidden)
        self.rotary = Rotary(model.qk_rope_head_dim, device)
        self.feed = TokenFeed(device, vocab, limits.max_num_seqs, limits.max_num_batched_tokens)
        self.softmax_scale = (model.qk_nope_head_dim + model.qk_rope_head_dim) ** -0.5

    def set_up(
        self, batch: Batch, chunks: Sequence[ChunkTensors], dense: DenseBatch | None
    ) -> None:
        """Every torch operator of a step of this batch, and no kernel."""
        bounds = made_up_bounds(chunks, self.device)
        step = self._step(batch, chunks, bounds, dense, None)
        self.buffers.slot_mapping.fill_(-1)
        self._forward(step)
        self.feed.last.zero_()

    def step(
        self,
        batch: Batch,
        chunks: Sequence[ChunkTensors],
        bounds: Sequence[Bounds],
        launches: LayerLaunches,
        dense: DenseBatch | None,
    ) -> torch.Tensor:
        """One step: the token id int64 that each row of the batch emits."""
        return self._forward(self._step(batch, chunks, bounds, dense, launches))

    def _step(
        self,
        batch: Batch,
        chunks: Sequence[ChunkTensors],
        bounds: Sequence[Bounds],
        dense: DenseBatch | None,
        launches: LayerLaunches | None,
    ) -> _Step:
        buffers, scratch = self.buffers, self.scratch
        decodes, tokens = batch.num_decodes, batch.num_tokens
        uniform = decodes and not batch.padded and launches is not None
        lens = scratch.decode_seq_lens if uniform else buffers.seq_lens
        table = scratch.expanded_block_table if uniform else buffers.block_table
        slices = indexer_slices(
            chunks if dense is None else (),
            bounds,
            blocks=buffers.block_table,
            block_size=self.block_size,
            first_row=decodes,
            first_token=decodes,
        )
        slot = buffers.slot_mapping[:tokens]
        context = None
        if dense is not None and dense.context_tokens:
            rows = [decodes + i for i in range(batch.num_prefills)]
            context = self._host_slots(rows, batch.prefill_contexts)
        longest = max(batch.decode_lens, default=0)
        return _Step(
            batch,
            torch.where(slot < 0, self.slot_count, slot),
            self.rotary.angles(buffers.positions[:tokens]),
            row_slots(table[:decodes], longest, self.block_size),
            lens[:decodes],
            tuple(slices),
            dense,
            context,
            launches,
        )

    def _host_slots(self, rows: Sequence[int], lengths: Sequence[int]) -> torch.Tensor:
        return host_slots(self.buffers.block_table, rows, lengths, self.block_size)

    def _forward(self, step: _Step) -> torch.Tensor:
        hidden = self.embedding(self.feed.fill(step.batch))
        for layer in self.layers:
            hidden = self._layer(layer, hidden, step)
        last = np.cumsum(step.batch.query_lens) - 1
        tokens = self.head(hidden, torch.from_numpy(last).to(self.device))
        self.feed.emitted(tokens)
        return tokens

    def _layer(self, layer: SparseMLALayer, hidden: torch.Tensor, step: _Step) -> torch.Tensor:
        projected = layer.project(hidden, step.slots, step.angles)
        if step.batch.num_decodes:
            self._select_for_decodes(layer, projected, step)
        for one in step.slices:
            scores = prefill_scores(
                projected.index_queries[one.first : one.last],
                projected.index_weights[one.first : one.last],
                layer.index_keys[one.key_slots],
                one.lengths,
            )
            self.scratch.topk[one.first : one.last] = select(scores, self.count)
        sparse = step.batch.num_tokens if step.dense is None else step.batch.num_decodes
        rows = self.scratch.rows[:sparse]
        if step.launches is None:
            rows.zero_()
        elif step.launches.convert is not None:
            step.launches.convert()
        queries = layer.absorbed(projected.queries[:sparse])
        attended = gathered_attention(
            queries, [(layer.cache, rows)], self.softmax_scale, layer.latent
        )
        values = layer.values(attended)
        if step.dense is not None:
            values = torch.cat((values, self._dense(layer, projected, step, step.dense)))
        return layer.output(hidden, values)

    def _select_for_decodes(self, layer: SparseMLALayer, projected: Projected, step: _Step) -> None:
        scratch, decodes = self.scratch, step.batch.num_decodes
        queries = projected.index_queries[:decodes]
        scratch.queries[:decodes] = queries.reshape(decodes, -1).to(scratch.queries.dtype)
        if step.launches is not None and step.launches.pack is not None:
            step.launches.pack()
            queries = scratch.packed_queries[:decodes].to(queries.dtype).view_as(queries)
        scores = decode_scores(
            queries,
            projected.index_weights[:decodes],
            layer.index_keys[step.decode_slots],
            step.decode_lens,
        )
        scratch.selected[:decodes, 0] = select(scores, self.count)
        if step.launches is not None and step.launches.unpack is not None:
            step.launches.unpack()

    def _dense(
        self, layer: SparseMLALayer, projected: Projected, step: _Step, dense: DenseBatch
    ) -> torch.Tensor:
        decodes = step.batch.num_decodes
        queries = projected.queries[decodes:]
        keys, values = layer.expanded(layer.cache[step.slots[decodes:]])
        earlier = None
        if step.context_slots is not None:
            earlier = layer.expanded(layer.cache[step.context_slots])
        if step.launches is None:
            lse = queries.new_zeros(queries.shape[1], queries.shape[0], dtype=torch.float32)
            return merge(values, lse, values, lse)
        output, lse_new = attend_new(dense, queries, keys, values)
        if earlier is None or lse_new is None:
            return output
        return merge(output, lse_new, *attend_contexts(dense, queries, *earlier))
