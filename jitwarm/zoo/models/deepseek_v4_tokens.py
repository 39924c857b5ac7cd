"""The token path of DeepSeek-V4: token ids to the next token of each request, around the kernels.

What is computed: embedding, and in every layer norms, query, key/value, compressor and indexer
projections, rotary embedding, states, writes to the paged caches, index scores and their selection
(torch), the attention over window and states (torch), the grouped output projection; then the
output head and argmax. Decodes read their rows from the caches, prefills from a workspace that a
chunk's states and windows are gathered into, at the rows of CombineTopkSwaIndices. Weights are
random bf16 in the real shapes of one tensor-parallel rank. What is left out: the experts, the sums
over the other ranks, the mixing of residual streams, and the overlap of neighbouring states.

Bytes of Pro at scale 1, tp 8: about 150 MB of weights a layer, 3.7 GB of embedding and head; 1,024
bytes of window cache a token and layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from jitwarm.config import EngineConfig
from jitwarm.traffic import Batch
from jitwarm.zoo.kernels.combine_topk_swa_indices import INDEXER_RATIO
from jitwarm.zoo.layers.compressor import CompressPlan, compress_plan
from jitwarm.zoo.layers.embedding import TokenEmbedding, TokenFeed
from jitwarm.zoo.layers.gathered_attention import gathered_attention
from jitwarm.zoo.layers.head import OutputHead
from jitwarm.zoo.layers.index_scores import decode_scores, prefill_scores, select
from jitwarm.zoo.layers.rotary import Rotary
from jitwarm.zoo.layers.weights import Scale, Weights
from jitwarm.zoo.layers.window_attention import LayerSizes, WindowAttentionLayer
from jitwarm.zoo.steps.block_tables import BlockTable
from jitwarm.zoo.steps.deepseek_v4_buffers import V4Buffers
from jitwarm.zoo.steps.gathered_prefill import CombineLaunch, Launch
from jitwarm.zoo.steps.indexer_slices import (
    Bounds,
    IndexerSlice,
    indexer_slices,
    made_up_bounds,
)
from jitwarm.zoo.steps.paged_slots import give_own_blocks, row_slots
from jitwarm.zoo.steps.step_buffers import ChunkTensors
from jitwarm.zoo.steps.workspace import Workspace, workspace


@dataclass(frozen=True, slots=True)
class StepKernels:
    """What the kernels of a step left for the layers, and what they still launch.

    `states` int64 [T] by ratio: the slot of the state that each token completes; `bounds`: first
    and past-the-last key column of the query rows of each indexer slice; `decode`: the launches
    around an indexer's decode scores; `combine` by ratio: those of the gathered prefill.
    """

    states: Mapping[int, torch.Tensor] = field(default_factory=dict)
    bounds: Sequence[Bounds] = ()
    decode: Sequence[Launch] = ()
    combine: Mapping[int, Sequence[CombineLaunch]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Ratio:
    """What the layers of one compress ratio share in a step.

    `decode_slots` int64 [decodes, S] and `decode_states` int32 [decodes]: where the states of each
    decode row are, and how many it has.
    """

    plan: CompressPlan | None
    slots: torch.Tensor | None
    decode_slots: torch.Tensor
    decode_states: torch.Tensor
    chunks: tuple[tuple[CombineLaunch, Workspace], ...]


@dataclass(frozen=True, slots=True)
class _Step:
    """What all layers share in a step. `live`: kernels may run (they may not while torch is set
    up).
    """

    batch: Batch
    slots: torch.Tensor
    angles: tuple[torch.Tensor, torch.Tensor]
    ratios: Mapping[int, _Ratio]
    slices: tuple[IndexerSlice, ...]
    kernels: StepKernels
    live: bool


class DeepSeekV4Tokens:
    """Weights, caches and the forward pass of one rank."""

    def __init__(
        self,
        config: EngineConfig,
        name: str,
        ratios: Sequence[int],
        buffers: V4Buffers,
        window_table: BlockTable,
        tables: Mapping[int, BlockTable],
        factor: int,
    ) -> None:
        """Draw all weights and give each row of the block tables blocks of its own; `factor`
        divides hidden size, query rank and vocabulary.
        """
        model, limits = config.model_config.hf_config, config.scheduler_config
        self.buffers, self.window_table, self.tables = buffers, window_table, tables
        self.ratio_of, self.rows = tuple(ratios), limits.max_num_seqs
        self.device = str(window_table.blocks.device)
        for table in (window_table, *tables.values()):
            give_own_blocks(table.blocks)
        ranks = config.parallel_config.tensor_parallel_size
        scale, weights = Scale(factor, name), Weights(self.device)
        hidden = scale("hidden_size", model.hidden_size)
        vocab = scale("vocab_size", model.vocab_size)
        self.embedding = TokenEmbedding(weights, "embedding", vocab, hidden)
        self.layers = [
            WindowAttentionLayer(
                weights,
                f"layers.{index}",
                model,
                LayerSizes(
                    ratio,
                    model.num_attention_heads // ranks,
                    max(1, model.o_groups // ranks),
                    window_table.blocks.numel() * window_table.block_size,
                    self._state_slots(ratio),
                    self.rows,
                ),
                scale,
                indexer=ratio == INDEXER_RATIO,
            )
            for index, ratio in enumerate(ratios)
        ]
        self.head = OutputHead(weights, "head", vocab, hidden)
        self.rotary = Rotary(model.qk_rope_head_dim, self.device)
        self.feed = TokenFeed(self.device, vocab, self.rows, limits.max_num_batched_tokens)
        self.softmax_scale = model.head_dim**-0.5
        # Layers that attend to all states select them in order; ids past the last are not read.
        order = torch.arange(buffers.most_states, dtype=torch.int32, device=self.device)
        buffers.all_states.copy_(order.expand_as(buffers.all_states))

    def set_up(self, batch: Batch, chunks: Sequence[ChunkTensors], kernels: StepKernels) -> None:
        """Every torch operator of a step of this batch, and no kernel: its outputs are made up."""
        bounds = made_up_bounds(chunks, self.device)
        none = torch.full((batch.num_tokens,), -1, dtype=torch.int64, device=self.device)
        made_up = StepKernels(dict.fromkeys(self.tables, none), bounds, (), kernels.combine)
        self.window_table.slots.fill_(-1)
        self.buffers.decode_window.zero_()
        self._forward(self._step(batch, chunks, made_up, live=False))
        self.feed.last.zero_()

    def step(
        self, batch: Batch, chunks: Sequence[ChunkTensors], kernels: StepKernels
    ) -> torch.Tensor:
        """One step: the token id int64 that each row of the batch emits."""
        return self._forward(self._step(batch, chunks, kernels, live=True))

    def _state_slots(self, ratio: int) -> int:
        table = self.tables.get(ratio)
        return table.blocks.numel() * (table.block_size // ratio) if table else 0

    def _step(
        self,
        batch: Batch,
        chunks: Sequence[ChunkTensors],
        kernels: StepKernels,
        *,
        live: bool,
    ) -> _Step:
        table = self.tables[INDEXER_RATIO]
        slices = indexer_slices(
            chunks,
            kernels.bounds,
            blocks=table.blocks,
            block_size=table.block_size // INDEXER_RATIO,
            first_row=batch.num_decodes,
            first_token=batch.num_decode_tokens,
        )
        slot = self.window_table.slots[: batch.num_tokens]
        trash = self.window_table.blocks.numel() * self.window_table.block_size
        return _Step(
            batch,
            torch.where(slot < 0, trash, slot),
            self.rotary.angles(self.buffers.positions[: batch.num_tokens]),
            {ratio: self._ratio(batch, ratio, kernels) for ratio in dict.fromkeys(self.ratio_of)},
            tuple(slices),
            kernels,
            live,
        )

    def _ratio(self, batch: Batch, ratio: int, kernels: StepKernels) -> _Ratio:
        decodes, table = batch.num_decodes, self.tables.get(ratio)
        window = self.buffers.window
        chunks = [
            (launch, workspace(batch, launch.chunk, ratio, window, self.window_table, table))
            for launch in kernels.combine.get(ratio, ())
        ]
        if table is None:
            none = self.window_table.slots.new_zeros(decodes, 0)
            return _Ratio(None, None, none, none.sum(1).int(), tuple(chunks))
        plan = compress_plan(batch.query_lens, batch.seq_lens, ratio, self.rows, self.device)
        slots = kernels.states[ratio]
        most = max(batch.decode_lens, default=0) // ratio
        return _Ratio(
            plan,
            torch.where(slots < 0, self._state_slots(ratio), slots),
            row_slots(table.blocks[:decodes], most, table.block_size // ratio),
            self.buffers.seq_lens[:decodes] // ratio,
            tuple(chunks),
        )

    def _forward(self, step: _Step) -> torch.Tensor:
        hidden = self.embedding(self.feed.fill(step.batch))
        for layer, ratio in zip(self.layers, self.ratio_of, strict=True):
            hidden = self._layer(layer, hidden, step, step.ratios[ratio])
        last = torch.from_numpy(np.cumsum(step.batch.query_lens) - 1).to(self.device)
        tokens = self.head(hidden, last)
        self.feed.emitted(tokens)
        return tokens

    def _layer(
        self, layer: WindowAttentionLayer, hidden: torch.Tensor, step: _Step, ratio: _Ratio
    ) -> torch.Tensor:
        x, latent, queries = layer.project(hidden, step.slots, step.angles)
        if ratio.plan is not None and ratio.slots is not None:
            layer.compress(x, ratio.plan, ratio.slots)
        state_rows = self._all_states(ratio)
        if layer.index_compressor is not None:
            state_rows = self._selected(layer, layer.index(x, latent), step, ratio)
        decodes = step.batch.num_decode_tokens
        attended = [
            gathered_attention(
                queries[:decodes],
                [
                    (layer.window, self.buffers.decode_window[:decodes, 0]),
                    (layer.states, state_rows),
                ],
                self.softmax_scale,
                layer.head_dim,
                layer.sink,
            )
        ]
        attended += [
            self._chunk(layer, queries[decodes:], launch, room, live=step.live)
            for launch, room in ratio.chunks
        ]
        return layer.output(hidden, torch.cat(attended), step.angles)

    def _all_states(self, ratio: _Ratio) -> torch.Tensor:
        """Rows of every state of each decode."""
        place = torch.arange(ratio.decode_slots.shape[1], device=self.device)
        return ratio.decode_slots.masked_fill(place >= ratio.decode_states[:, None], -1)

    def _selected(
        self,
        layer: WindowAttentionLayer,
        index: tuple[torch.Tensor, torch.Tensor],
        step: _Step,
        ratio: _Ratio,
    ) -> torch.Tensor:
        """Select states for all tokens; returns the rows of the decodes' selection."""
        buffers, decodes = self.buffers, step.batch.num_decodes
        queries, weights = index
        count = buffers.index_topk
        for one in step.slices:
            part = slice(one.first, one.last)
            keys = layer.index_keys[one.key_slots]
            scores = prefill_scores(queries[part], weights[part], keys, one.lengths)
            buffers.topk[part] = select(scores, count)
        if not decodes:
            return ratio.decode_slots
        own = queries[:decodes]
        buffers.queries[:decodes] = own.reshape(decodes, -1).to(buffers.queries.dtype)
        if step.live:
            pack, unpack = step.kernels.decode
            pack()
            own = buffers.packed_queries[:decodes].to(own.dtype).view_as(own)
        keys = layer.index_keys[ratio.decode_slots]
        scores = decode_scores(own, weights[:decodes], keys, ratio.decode_states)
        buffers.selected[:decodes, 0] = select(scores, count)
        if step.live:
            unpack()
        chosen = buffers.topk[:decodes].long()
        if not ratio.decode_slots.shape[1]:
            return ratio.decode_slots
        rows = ratio.decode_slots.gather(1, chosen.clamp(0, ratio.decode_slots.shape[1] - 1))
        return rows.masked_fill(chosen < 0, -1)

    def _chunk(
        self,
        layer: WindowAttentionLayer,
        queries: torch.Tensor,
        launch: CombineLaunch,
        room: Workspace,
        *,
        live: bool,
    ) -> torch.Tensor:
        """Attention of one gathered chunk of prefills."""
        keys = layer.window.new_zeros(room.rows, layer.head_dim)
        keys.index_copy_(0, room.state_places, layer.states[room.state_slots])
        keys.index_copy_(0, room.window_places, layer.window[room.window_slots])
        launch.indices.fill_(-1)
        if live:
            launch()
        own = queries[launch.chunk.start : launch.chunk.stop]
        sources = [(keys, launch.indices)]
        return gathered_attention(own, sources, self.softmax_scale, layer.head_dim, layer.sink)
