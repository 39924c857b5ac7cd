"""DeepSeek-V3.2: 61 sparse MLA layers, each with an indexer, under decode context parallelism
(DCP).

What is real: which layer registers what and when, the buffers and how they are sliced, the order
and arguments of the launches of nine kernels, on this rank. What is generated: the inputs of these
kernels (projections, scores, the gathered parts of the other ranks). What is left out: projections,
attention, experts and the top-k itself, so no token comes out.

Launch order of a step. Once: ComputeSlotMapping; PrepareUniformDecode for a decode part without
padding; ComputePrefillMetadata; BuildPrefillChunkMetadata for each slice of each prefill chunk. In
every layer: PackSeq and UnpackSeq around the decode scores; with DCP PackDCPTopkCandidates for the
decode rows and for each prefill slice; ConvertReqIndexToGlobalIndex for all tokens; with DCP
CorrectAttnCPOut for the decode tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from jitwarm.config import EngineConfig, HFConfig
from jitwarm.device import Device
from jitwarm.errors import ScenarioError
from jitwarm.registry import owner
from jitwarm.traffic import Batch
from jitwarm.zoo.kernels.build_prefill_chunk_metadata import build_prefill_chunk_metadata
from jitwarm.zoo.kernels.compute_prefill_metadata import compute_prefill_metadata
from jitwarm.zoo.kernels.compute_slot_mapping import (
    ComputeSlotMapping,
    block_table_width,
    compute_slot_mapping,
)
from jitwarm.zoo.kernels.convert_req_index_entry_points import convert, filter_dcp
from jitwarm.zoo.kernels.convert_req_index_to_global_index import convert_req_index_to_global_index
from jitwarm.zoo.kernels.correct_attn_cp_out import correct_attn_cp_out
from jitwarm.zoo.kernels.pack_dcp_topk_candidates import pack_dcp_topk_candidates
from jitwarm.zoo.kernels.pack_seq import PackSeq, pack_seq
from jitwarm.zoo.kernels.prepare_uniform_decode import PrepareUniformDecode, prepare_uniform_decode
from jitwarm.zoo.kernels.unpack_seq import UnpackSeq, unpack_seq
from jitwarm.zoo.models.layer_scratch import LayerScratch
from jitwarm.zoo.models.prefill_chunks import MAX_SCORES
from jitwarm.zoo.models.step_buffers import ChunkTensors, StepBuffers

# Attention backends: whether they attend to the indexer's selection. Only the selected one's
# kernels register.
BACKENDS = {"FLASHMLA_SPARSE": True, "FLASHINFER_MLA_SPARSE": True, "FLASHMLA": False}
# Before the KV cache is laid out the runner makes its block tables for the engine's default block.
PLACEHOLDER_BLOCK_SIZE = 16
INDEXER_DTYPE = torch.float8_e4m3fn
WINDOW = 128


class DeepSeekV32:
    """One rank of the model."""

    hf_config = HFConfig(
        num_hidden_layers=61,
        num_attention_heads=128,
        hidden_size=7168,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        index_topk=2048,
        index_n_heads=64,
        index_head_dim=128,
    )

    def __init__(self, config: EngineConfig, device: Device) -> None:
        """Build every layer; each registers its kernels.

        Raises `ScenarioError` for an attention backend that the model lacks.
        """
        if config.attention_backend not in BACKENDS:
            raise ScenarioError(
                "model deepseek-v3.2",
                "$.attention_backend",
                f"unknown backend {config.attention_backend!r}: expected one of "
                f"{', '.join(BACKENDS)}",
            )
        heads = config.model_config.hf_config.num_attention_heads
        if heads % config.parallel_config.tensor_parallel_size:
            raise ScenarioError(
                "model deepseek-v3.2",
                "$.parallel.tp",
                f"tp {config.parallel_config.tensor_parallel_size} does not divide {heads} heads",
            )
        self.config, self.device = config, device.torch_device
        self.sparse = BACKENDS[config.attention_backend]
        parallel, model = config.parallel_config, config.model_config.hf_config
        self.layers = model.num_hidden_layers
        self.world, self.rank = parallel.decode_context_parallel_size, parallel.dcp_rank
        self.local_heads = model.num_attention_heads // parallel.tensor_parallel_size
        self._register_block_table(PLACEHOLDER_BLOCK_SIZE)
        for index in range(self.layers):
            self._build_layer(f"model.layers.{index}")

    def _build_layer(self, name: str) -> None:
        model = self.config.model_config.hf_config
        if self.sparse:
            with owner(f"{name}.self_attn.indexer"):
                PackSeq.register_warmup(dtype=INDEXER_DTYPE, pad_value=-float("inf"))
                UnpackSeq.register_warmup()
                if self.world > 1:
                    pack_dcp_topk_candidates.register_warmup()
        with owner(f"{name}.self_attn"):
            if self.sparse:
                PrepareUniformDecode.register_warmup()
                build_prefill_chunk_metadata.register_warmup()
                compute_prefill_metadata.register_warmup()
            if self.world > 1:
                correct_attn_cp_out.register_warmup(
                    output_dtype=torch.bfloat16,
                    num_heads=self.local_heads,
                    head_dim=model.kv_lora_rank,
                    is_base_e=True,
                )

    def bind_kv_cache(self) -> None:
        """The cache is allocated, its geometry is known: what depends on it registers for good."""
        block_size = self.config.cache_config.block_size
        self._register_block_table(block_size)
        if self.sparse:
            for index in range(self.layers):
                with owner(f"model.layers.{index}.self_attn"):
                    convert_req_index_to_global_index.register_warmup(block_stride_rows=block_size)
        self.buffers = StepBuffers(self.config, self.device)
        self.scratch = LayerScratch(
            self.config, self.device, self.local_heads * self.world, INDEXER_DTYPE
        )

    def set_up(self) -> None:
        """Every torch operator of a step once: the fill of the buffers, with decodes and a sliced
        prefill.
        """
        limits = self.config.scheduler_config
        if min(limits.max_num_seqs, limits.max_num_batched_tokens) >= 2:
            self.buffers.fill(Batch((1,), (1,), (0,)))
        self.buffers.fill(Batch((1,), (), ()))
        self.scratch.views(1)

    def step(self, batch: Batch) -> None:
        """Launch the kernels of one step."""
        chunks = self.buffers.fill(batch)
        self._metadata(batch, chunks)
        launches = self._layer_launches(batch, chunks)
        for _ in range(self.layers):
            for launch in launches:
                launch()

    def _register_block_table(self, block_size: int) -> None:
        parallel = self.config.parallel_config
        with owner("block_tables.0"):
            ComputeSlotMapping.register_warmup(
                kv_cache_block_size=block_size,
                total_cp_world_size=self.world,
                total_cp_rank=self.rank,
                cp_kv_cache_interleave_size=min(parallel.cp_kv_cache_interleave_size, block_size),
                block_table_stride=block_table_width(
                    self.config.model_config.max_model_len, block_size, self.world
                ),
            )

    def _metadata(self, batch: Batch, chunks: list[ChunkTensors]) -> None:
        """The kernels that run once a step."""
        buffers, scratch = self.buffers, self.scratch
        rows, decodes, prefills = len(batch.query_lens), batch.num_decodes, batch.num_prefills
        compute_slot_mapping(
            buffers.query_start_loc[: rows + 1],
            buffers.positions[: batch.num_tokens],
            buffers.block_table,
            buffers.slot_mapping,
            kv_cache_block_size=self.config.cache_config.block_size,
            total_cp_world_size=self.world,
            total_cp_rank=self.rank,
            cp_kv_cache_interleave_size=buffers.interleave,
        )
        if not self.sparse:
            return
        if decodes and not batch.padded:
            prepare_uniform_decode(
                buffers.seq_lens[:decodes],
                buffers.block_table[:decodes],
                scratch.decode_seq_lens,
                scratch.expanded_block_table,
                scratch.expanded_decode_lens,
                tokens_per_request=1,
            )
        if prefills:
            compute_prefill_metadata(
                buffers.seq_lens[:rows],
                buffers.query_start_loc[: rows + 1],
                buffers.replay_start[:rows],
                prefills,
                decodes,
                WINDOW,
                gather_lens=scratch.gather_lens,
            )
        for chunk in chunks:
            for start, stop in chunk.chunk.slices:
                build_prefill_chunk_metadata(
                    chunk.query_start_loc,
                    chunk.seq_lens,
                    chunk.cu_seq_lens,
                    start,
                    stop,
                    token_to_seq=scratch.token_to_seq[: chunk.total],
                    row_starts=chunk.row_starts,
                    dcp_rank=self.rank,
                    dcp_world_size=self.world,
                    dcp_interleave=buffers.interleave,
                    cu_seqlen_ks=scratch.starts[: stop - start],
                    cu_seqlen_ke=scratch.ends[: stop - start],
                )

    def _layer_launches(
        self, batch: Batch, chunks: list[ChunkTensors]
    ) -> list[Callable[[], object]]:
        """The launches of one layer, in order.

        Their slices are taken once: all layers read the same buffers.
        """
        launches: list[Callable[[], object]] = []
        decodes = batch.num_decodes
        if self.sparse:
            if decodes:
                launches += self._decode_indexer(decodes)
            if self.world > 1:
                launches += [
                    self._prefill_candidates(chunk, *bounds)
                    for chunk in chunks
                    for bounds in chunk.chunk.slices
                ]
            launches.append(self._convert(batch))
        if self.world > 1 and decodes:
            view = self.scratch.views(decodes)
            launches.append(
                lambda: correct_attn_cp_out(
                    view.outputs, view.lses, self.rank, is_base_e=True, vlse=view.vlse
                )
            )
        return launches

    def _decode_indexer(self, decodes: int) -> list[Callable[[], object]]:
        scratch, lengths = self.scratch, self.buffers.decode_lens[:decodes]
        queries, packed = scratch.queries[:decodes], scratch.packed_queries[:decodes]
        selected, topk = scratch.selected[:decodes], scratch.topk[:decodes]
        launches: list[Callable[[], object]] = [
            lambda: pack_seq(queries, lengths, packed, max_len=1),
            lambda: unpack_seq(selected, lengths, topk, total=decodes),
        ]
        if self.world > 1:
            columns = min(
                -(-self.config.model_config.max_model_len // self.world), MAX_SCORES // decodes
            )
            launches.append(self._candidates(decodes, columns, topk, None))
        return launches

    def _prefill_candidates(
        self, chunk: ChunkTensors, start: int, stop: int
    ) -> Callable[[], object]:
        rows = stop - start
        return self._candidates(
            rows, chunk.context, self.scratch.topk[start:stop], self.scratch.starts[:rows]
        )

    def _candidates(
        self, rows: int, columns: int, topk: torch.Tensor, row_starts: torch.Tensor | None
    ) -> Callable[[], object]:
        scores = self.scratch.scores[: rows * columns].view(rows, columns)
        packed = self.scratch.candidates[:rows]
        return lambda: pack_dcp_topk_candidates(
            scores,
            topk,
            row_starts,
            packed,
            dcp_rank=self.rank,
            dcp_world_size=self.world,
            cp_interleave=self.buffers.interleave,
        )

    def _convert(self, batch: Batch) -> Callable[[], object]:
        """Physical rows of the selected tokens: with counts for decodes, in place for a bf16
        prefill, by rank under DCP.
        """
        scratch, buffers, tokens = self.scratch, self.buffers, batch.num_tokens
        block_size = self.config.cache_config.block_size
        req_id, table = buffers.req_id[:tokens], buffers.block_table[: len(batch.query_lens)]
        topk, rows, counts = scratch.topk[:tokens], scratch.rows[:tokens], scratch.counts[:tokens]
        if self.world > 1:
            return lambda: filter_dcp(
                req_id,
                table,
                topk,
                dcp_size=self.world,
                dcp_rank=self.rank,
                dcp_interleave=buffers.interleave,
                block_size=block_size,
                num_topk_tokens=topk.shape[1],
                block_stride_rows=block_size,
                out=rows,
                valid_counts=counts,
                return_valid_counts=True,
            )
        workspace = batch.num_prefills > 0 and self.config.cache_config.cache_dtype.startswith(
            "fp8"
        )
        counting = workspace or not batch.num_prefills
        return lambda: convert(
            req_id,
            table,
            topk,
            block_size=block_size,
            num_topk_tokens=topk.shape[1],
            block_stride_rows=block_size,
            prefill_request_id=scratch.prefill_request_id[:tokens] if workspace else None,
            workspace_start=scratch.workspace_start if workspace else None,
            out=rows,
            valid_counts=counts if counting else None,
            return_valid_counts=counting,
        )
