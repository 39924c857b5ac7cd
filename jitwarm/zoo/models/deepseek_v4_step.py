"""The launches of one step of DeepSeek-V4, in order.

Once: ComputeSlotMapping of each KV-cache group; ComputeSWAIndicesAndLens for the decode rows, then
for the prefill rows; ComputePrefillMetadata; CompressedSlotMapping of each ratio above 1;
PrepareUniformDecode for a decode part without padding; BuildPrefillChunkMetadata for each slice of
each chunk of the indexer. In every layer: PackSeq and UnpackSeq around the decode scores, if it has
an indexer; CombineTopkSwaIndices for each chunk of the gathered prefill, if the backend gathers.
With DSpark drafts the step ends with the draft batch: its decode rows are not causal, so
ComputeDSparkNoncausalSWAIndices takes the place of their windows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from jitwarm.config import EngineConfig
from jitwarm.traffic import Batch
from jitwarm.zoo.kernels.build_prefill_chunk_metadata import build_prefill_chunk_metadata
from jitwarm.zoo.kernels.combine_topk_swa_indices import INDEXER_RATIO
from jitwarm.zoo.kernels.compressed_slot_mapping import compressed_slot_mapping
from jitwarm.zoo.kernels.compute_dspark_noncausal_swa_indices import (
    compute_dspark_noncausal_swa_indices,
)
from jitwarm.zoo.kernels.compute_prefill_metadata import compute_prefill_metadata
from jitwarm.zoo.kernels.compute_swa_indices_and_lens import compute_swa_indices_and_lens
from jitwarm.zoo.kernels.pack_seq import pack_seq
from jitwarm.zoo.kernels.prepare_uniform_decode import prepare_uniform_decode
from jitwarm.zoo.kernels.unpack_seq import unpack_seq
from jitwarm.zoo.models.deepseek_v4_tokens import DeepSeekV4Tokens, StepKernels
from jitwarm.zoo.steps.block_tables import BlockTable
from jitwarm.zoo.steps.deepseek_v4_buffers import V4Buffers
from jitwarm.zoo.steps.gathered_prefill import CombineLaunch, GatheredPrefill, Launch
from jitwarm.zoo.steps.indexer_slices import Bounds
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES
from jitwarm.zoo.steps.step_buffers import ChunkTensors, IndexerChunks

WINDOW_BLOCK_SIZE = 64  # tokens


class V4Step:
    """Block tables, buffers and launches of a model with these compress ratios, one a layer."""

    def __init__(
        self,
        config: EngineConfig,
        device: str,
        ratios: tuple[int, ...],
        *,
        combines: bool,
        max_scores: int = MAX_SCORES,
    ) -> None:
        """Allocate; each block table registers. `combines`: the backend gathers its prefill;
        `max_scores` bounds a chunk of the indexer.
        """
        self.config, self.ratios = config, ratios
        drafts = config.speculative_config
        self.draft_tokens = drafts.num_speculative_tokens if drafts else 0
        self.query_len = 1 + self.draft_tokens
        self.window = config.model_config.hf_config.sliding_window
        self.window_table = BlockTable(config, 0, WINDOW_BLOCK_SIZE, device)
        self.tables = {
            ratio: BlockTable(config, group, config.cache_config.block_size, device)
            for group, ratio in enumerate(sorted({r for r in ratios if r > 1}), start=1)
        }
        self.buffers = V4Buffers(config, device, self.query_len, max_scores)
        self.gathered = GatheredPrefill(config, self.buffers) if combines else None
        self.chunks = IndexerChunks(config, device, INDEXER_RATIO, max_scores)
        self.tokens: DeepSeekV4Tokens | None = None
        self.expanded_blocks = self.window_table.blocks.new_empty(
            self.buffers.expanded_lens.shape[0], self.tables[INDEXER_RATIO].width
        )

    def add_tokens(self, name: str, factor: int) -> None:
        """Run from token ids to token ids from now on; `factor` divides what the layers scale."""
        self.tokens = DeepSeekV4Tokens(
            self.config, name, self.ratios, self.buffers, self.window_table, self.tables, factor
        )

    def set_up(self, headline: Sequence[Batch]) -> None:
        """Every torch operator of a step once: the fill of the buffers, an image with it, and the
        token path on the batches of the headline.
        """
        length = self.query_len
        batch = Batch((length,), (), (), 0, length)
        limits = self.config.scheduler_config
        new = min(
            64, limits.max_num_batched_tokens - length, self.config.model_config.max_model_len
        )
        if limits.max_num_seqs > 1 and new > 0:
            batch = Batch((length,), (new,), (0,), 0, length)
        self._fill(batch)
        self.buffers.mark_valid(self.window_table.slots[: batch.num_tokens])
        if self.tokens is not None:
            for batch in headline:
                chunks = self._fill(batch)
                self.tokens.set_up(batch, chunks, StepKernels(combine=self._combine(batch)))

    def run(self, batch: Batch) -> None:
        """Launch everything."""
        indexer_chunks = self._fill(batch)
        self._map_slots(batch)
        self._window(batch)
        states = self._states(batch)
        bounds = self._indexer(batch, indexer_chunks)
        decode, combine = self._decode_scores(batch), self._combine(batch)
        if self.tokens is not None:
            kernels = StepKernels(states, bounds, decode, combine)
            self.tokens.step(batch, indexer_chunks, kernels)
            return
        launches = {
            ratio: [*(decode if ratio == INDEXER_RATIO else ()), *combine.get(ratio, ())]
            for ratio in dict.fromkeys(self.ratios)
        }
        for ratio in self.ratios:
            for launch in launches[ratio]:
                launch()
        if self.draft_tokens and batch.num_decodes:
            self._draft(batch)

    def _combine(self, batch: Batch) -> dict[int, list[CombineLaunch]]:
        if self.gathered is None:
            return {}
        return {ratio: self.gathered.launches(batch, ratio) for ratio in dict.fromkeys(self.ratios)}

    def _fill(self, batch: Batch) -> list[ChunkTensors]:
        self.buffers.fill(batch)
        return self.chunks.fill(batch, self.buffers.seq_lens)

    def _map_slots(self, batch: Batch) -> None:
        for table in (self.window_table, *self.tables.values()):
            table.map(self.buffers, batch)
        self.buffers.mark_valid(self.window_table.slots[: batch.num_tokens])

    def _window(self, batch: Batch) -> None:
        """The window of each token; a decode never sees an image."""
        buffers, prefill_tokens = self.buffers, batch.num_tokens - batch.num_decode_tokens
        if batch.num_decodes:
            self._window_rows(
                batch,
                batch.num_decode_tokens,
                0,
                buffers.decode_window,
                buffers.decode_window_lens,
            )
        if batch.num_prefills:
            visible = {}
            if buffers.has_image:
                visible = {
                    "left_visible": buffers.left_visible,
                    "right_visible": buffers.right_visible,
                }
            self._window_rows(
                batch,
                prefill_tokens,
                batch.num_decode_tokens,
                buffers.prefill_window,
                buffers.prefill_window_lens,
                **visible,
            )
            rows = len(batch.query_lens)
            compute_prefill_metadata(
                buffers.seq_lens[:rows],
                buffers.query_start_loc[: rows + 1],
                buffers.replay_start[:rows],
                batch.num_prefills,
                batch.num_decodes,
                self.window,
                gather_lens=buffers.gather_lens,
            )

    def _window_rows(
        self,
        batch: Batch,
        tokens: int,
        offset: int,
        indices: torch.Tensor,
        lens: torch.Tensor,
        **visible: torch.Tensor,
    ) -> None:
        buffers, rows = self.buffers, len(batch.query_lens)
        compute_swa_indices_and_lens(
            buffers.req_id,
            buffers.is_valid,
            buffers.query_start_loc[: rows + 1],
            buffers.seq_lens[:rows],
            self.window_table.blocks[:rows],
            buffers.replay_start[:rows],
            num_tokens=tokens,
            token_offset=offset,
            window_size=self.window,
            block_size=WINDOW_BLOCK_SIZE,
            index_width=indices.shape[2],
            indices=indices,
            lens=lens,
            **visible,
        )

    def _states(self, batch: Batch) -> dict[int, torch.Tensor]:
        """The slots of the states that this step completes, for each ratio.

        All go to one scratch buffer; the token path gets a copy of each.
        """
        kept: dict[int, torch.Tensor] = {}
        buffers, rows = self.buffers, len(batch.query_lens)
        for ratio, table in self.tables.items():
            compressed_slot_mapping(
                table.slots[: batch.num_tokens],
                buffers.query_start_loc[: rows + 1],
                buffers.seq_lens[:rows],
                table.blocks[:rows],
                block_size=table.block_size // ratio,
                compress_ratio=ratio,
                dcp_world_size=table.world,
                cp_interleave=table.interleave,
                out=buffers.compressed_slots,
            )
            if self.tokens is not None:
                kept[ratio] = buffers.compressed_slots[: batch.num_tokens].clone()
        return kept

    def _indexer(self, batch: Batch, chunks: list[ChunkTensors]) -> list[Bounds]:
        """The metadata that all indexers share; the token path gets a copy of each slice's."""
        bounds: list[Bounds] = []
        buffers, decodes = self.buffers, batch.num_decodes
        if decodes and not batch.padded:
            prepare_uniform_decode(
                buffers.seq_lens[:decodes],
                self.tables[INDEXER_RATIO].blocks[:decodes],
                buffers.expanded_seq_lens,
                self.expanded_blocks,
                buffers.expanded_lens,
                tokens_per_request=batch.decode_query_len,
            )
        for chunk in chunks:
            for start, stop in chunk.chunk.slices:
                build_prefill_chunk_metadata(
                    chunk.query_start_loc,
                    chunk.seq_lens,
                    chunk.cu_seq_lens,
                    start,
                    stop,
                    token_to_seq=buffers.token_to_seq[: chunk.total],
                    compress_ratio=INDEXER_RATIO,
                    dcp_interleave=self.chunks.interleave,
                    cu_seqlen_ks=buffers.starts[: stop - start],
                    cu_seqlen_ke=buffers.ends[: stop - start],
                )
                if self.tokens is not None:
                    rows = stop - start
                    bounds.append((buffers.starts[:rows].clone(), buffers.ends[:rows].clone()))
        return bounds

    def _decode_scores(self, batch: Batch) -> list[Launch]:
        """Around the scores of a layer's decode rows: queries in, selection out."""
        buffers, decodes, tokens = self.buffers, batch.num_decodes, batch.num_decode_tokens
        if not decodes:
            return []
        lengths = buffers.decode_lens[:decodes]
        return [
            functools.partial(
                pack_seq,
                buffers.queries[:tokens],
                lengths,
                buffers.packed_queries[:decodes],
                max_len=batch.decode_query_len,
            ),
            functools.partial(
                unpack_seq,
                buffers.selected[:decodes],
                lengths,
                buffers.topk[:tokens],
                total=tokens,
            ),
        ]

    def _draft(self, batch: Batch) -> None:
        """The draft batch: every new token of a request sees all of them, and the window before."""
        buffers, decodes = self.buffers, batch.num_decodes
        compute_dspark_noncausal_swa_indices(
            buffers.req_id,
            buffers.is_valid,
            buffers.query_start_loc[: decodes + 1],
            buffers.seq_lens[:decodes],
            self.window_table.blocks[:decodes],
            num_tokens=batch.num_decode_tokens,
            token_offset=0,
            window_size=self.window,
            num_speculative_tokens=self.draft_tokens,
            block_size=WINDOW_BLOCK_SIZE,
            indices=buffers.draft_window,
            lens=buffers.draft_window_lens,
        )
