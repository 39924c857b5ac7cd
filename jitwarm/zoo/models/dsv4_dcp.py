"""The kernels of DeepSeek-V4 that admit decode context parallelism (DCP), in a model of their own.

60 layers, 20 of each kind. Kind 1 selects tokens: its indexer exchanges candidates between the
ranks. Kind 4 has an indexer over states of 4 tokens, kind 128 attends to all states of 128. Turns
of a multiple of 128 tokens keep every state on one rank.

Admitted: ComputeSlotMapping and CompressedSlotMapping (both know turns), BuildPrefillChunkMetadata
(turns of I/r states), PrepareUniformDecode and ComputePrefillMetadata (lengths alone), PackSeq and
UnpackSeq (no positions), CorrectAttnCPOut. PackDCPTopkCandidates, StableTopKFromGatheredCandidates
and ConvertReqIndexToGlobalIndex take turns of tokens, so only kind 1 has them. Left out:
ComputeSWAIndicesAndLens, its non-causal twin and CombineTopkSwaIndices know no rank; they address
windows and gathered rows as if all of the context were here.

What is real and what is generated is as in `deepseek_v32`, and so is the option `max_scores`; no
token comes out. Launch order of a
step. Once: ComputeSlotMapping of each kind's block table; PrepareUniformDecode;
ComputePrefillMetadata; CompressedSlotMapping of kinds 4 and 128; BuildPrefillChunkMetadata of each
kind, chunk and slice. Then the layers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from jitwarm.config import EngineConfig, HFConfig
from jitwarm.device import Device
from jitwarm.errors import ScenarioError
from jitwarm.proof.envelope import Envelope
from jitwarm.registry import owner
from jitwarm.traffic import Batch
from jitwarm.zoo.envelopes.dsv4_dcp import dsv4_dcp
from jitwarm.zoo.kernels.build_prefill_chunk_metadata import build_prefill_chunk_metadata
from jitwarm.zoo.kernels.compressed_slot_mapping import compressed_slot_mapping
from jitwarm.zoo.kernels.compute_prefill_metadata import compute_prefill_metadata
from jitwarm.zoo.kernels.convert_req_index_to_global_index import convert_req_index_to_global_index
from jitwarm.zoo.kernels.correct_attn_cp_out import correct_attn_cp_out
from jitwarm.zoo.kernels.pack_dcp_topk_candidates import pack_dcp_topk_candidates
from jitwarm.zoo.kernels.pack_seq import PackSeq
from jitwarm.zoo.kernels.prepare_uniform_decode import PrepareUniformDecode, prepare_uniform_decode
from jitwarm.zoo.kernels.stable_topk import stable_topk
from jitwarm.zoo.kernels.unpack_seq import UnpackSeq
from jitwarm.zoo.models.options import (
    BF16,
    FP8,
    OfType,
    Value,
    check_max_scores,
    model_options,
    refuse_unsupported,
)
from jitwarm.zoo.steps.block_tables import (
    PLACEHOLDER_BLOCK_SIZE,
    BlockTable,
    register_block_table,
)
from jitwarm.zoo.steps.layer_scratch import LayerScratch
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES, local_length
from jitwarm.zoo.steps.sparse_mla_launches import SparseMLALaunches
from jitwarm.zoo.steps.step_buffers import ChunkTensors, IndexerChunks, StepBuffers, fill_start

KINDS = (1, 4, 128)  # tokens a state
OPTIONS: dict[str, tuple[Value, ...] | OfType] = {
    "stable_topk": ("auto", "triton", "cutedsl"),
    "max_scores": OfType(int, MAX_SCORES),
}
INDEXER_DTYPE = torch.float8_e4m3fn
BACKEND = "FLASHMLA_SPARSE"


class DeepSeekV4DCP:
    """One rank of the model."""

    name = "dsv4-dcp"
    hf_config = HFConfig(
        num_hidden_layers=60,
        num_attention_heads=128,
        hidden_size=7168,
        kv_lora_rank=512,
        qk_nope_head_dim=448,
        qk_rope_head_dim=64,
        v_head_dim=512,
        index_topk=1024,
        index_n_heads=64,
        index_head_dim=128,
        compress_ratios=KINDS * 20,
        head_dim=512,
        sliding_window=128,
    )

    def __init__(self, config: EngineConfig, device: Device) -> None:
        """Build every layer; each registers its kernels.

        Raises `ScenarioError` for an interleave that tears states apart, and for unknown options.
        """
        self.config, self.device = config, device.torch_device
        options = model_options(config, OPTIONS, model=self.name)
        self.stable_topk, self.max_scores = options["stable_topk"], options["max_scores"]
        check_max_scores(config, self.max_scores, self.name)
        parallel, model = config.parallel_config, config.model_config.hf_config
        self.layers, self.kinds = model.num_hidden_layers, model.compress_ratios
        self.world, self.rank = parallel.decode_context_parallel_size, parallel.dcp_rank
        self._check(config)
        self.local_heads = model.num_attention_heads // parallel.tensor_parallel_size
        register_block_table(config, 0, PLACEHOLDER_BLOCK_SIZE)
        for index, kind in enumerate(self.kinds):
            self._build_layer(f"model.layers.{index}.attn", kind)

    def bind_kv_cache(self) -> None:
        """The cache is laid out: block tables and the rows of selected tokens register for good."""
        config, block_size = self.config, self.config.cache_config.block_size
        self.tables = {
            kind: BlockTable(config, group, block_size, self.device)
            for group, kind in enumerate(KINDS)
        }
        for index, kind in enumerate(self.kinds):
            if kind == 1:
                with owner(f"model.layers.{index}.attn"):
                    convert_req_index_to_global_index.register_warmup(block_stride_rows=block_size)
        self.buffers = StepBuffers(config, self.device, self.max_scores)
        self.chunks = {
            kind: IndexerChunks(config, self.device, kind, self.max_scores) for kind in KINDS
        }
        self.scratch = LayerScratch(
            config, self.device, self.local_heads * self.world, INDEXER_DTYPE, self.max_scores
        )
        self.launches = SparseMLALaunches(config, self.buffers, self.scratch, self.stable_topk)
        self.local_seq_lens = torch.zeros_like(self.buffers.seq_lens)
        self.state_slots = torch.empty_like(self.buffers.slot_mapping)

    def set_up(self) -> None:
        """Every torch operator of a step once: the fill of the buffers, with a prefill if one fits
        beside a decode.
        """
        limits = self.config.scheduler_config
        batch = Batch((1,), (), ())
        if min(limits.max_num_seqs, limits.max_num_batched_tokens) > 1:
            batch = Batch((1,), (1,), (0,))
        self._fill(batch)
        self.scratch.views(1)

    def step(self, batch: Batch) -> None:
        """Launch the kernels of one step."""
        chunks = self._fill(batch)
        self._metadata(batch, chunks)
        layer = self.launches.layer(batch, chunks[1], sparse=True, dense_prefill=False)
        of_kind = {
            1: list(layer),
            4: [one for one in (layer.pack, layer.unpack, layer.correct) if one],
            128: [one for one in (layer.correct,) if one],
        }
        for kind in self.kinds:
            for launch in of_kind[kind]:
                launch()

    def envelopes(self) -> Iterator[Envelope]:
        """Everything that a step can launch, whatever the traffic."""
        return dsv4_dcp(
            self.config,
            kinds=KINDS,
            indexer_dtype=INDEXER_DTYPE,
            select=stable_topk(self.stable_topk),
            max_scores=self.max_scores,
        )

    def _build_layer(self, name: str, kind: int) -> None:
        if kind < max(KINDS):
            with owner(f"{name}.indexer"):
                PackSeq.register_warmup(dtype=INDEXER_DTYPE, pad_value=-float("inf"))
                UnpackSeq.register_warmup()
                if kind == 1 and self.world > 1:
                    pack_dcp_topk_candidates.register_warmup()
                    stable_topk(self.stable_topk).register_warmup()
        with owner(name):
            compressed_slot_mapping.register_warmup()
            PrepareUniformDecode.register_warmup()
            build_prefill_chunk_metadata.register_warmup(max_scores=self.max_scores)
            compute_prefill_metadata.register_warmup()
            if self.world > 1:
                correct_attn_cp_out.register_warmup(
                    output_dtype=torch.bfloat16,
                    num_heads=self.local_heads,
                    head_dim=self.config.model_config.hf_config.kv_lora_rank,
                    is_base_e=True,
                )

    def _check(self, config: EngineConfig) -> None:
        def require(holds: bool, path: str, problem: str) -> None:
            if not holds:
                raise ScenarioError(f"model {self.name}", path, problem)

        parallel, largest = config.parallel_config, max(KINDS)
        heads = config.model_config.hf_config.num_attention_heads
        refuse_unsupported(config, "dsv4-dcp", cache_dtypes=BF16 + FP8, dcp=True)
        interleave, block_size = (
            parallel.cp_kv_cache_interleave_size,
            config.cache_config.block_size,
        )
        require(
            config.attention_backend == BACKEND,
            "$.attention_backend",
            f"unknown backend {config.attention_backend!r}: expected {BACKEND}",
        )
        require(
            heads % parallel.tensor_parallel_size == 0,
            "$.parallel.tp",
            f"tp {parallel.tensor_parallel_size} does not divide {heads} heads",
        )
        require(
            self.world == 1 or interleave % largest == 0,
            "$.parallel.cp_kv_cache_interleave_size",
            f"turns of {interleave} tokens tear states of {largest} tokens apart: choose a "
            f"multiple of {largest}",
        )
        require(
            block_size % largest == 0,
            "$.cache.block_size",
            f"a block of {block_size} tokens does not hold whole states of {largest} tokens",
        )

    def _fill(self, batch: Batch) -> dict[int, list[ChunkTensors]]:
        """Copy a batch to the device; the chunks of its prefill for each kind."""
        self.buffers.copy(batch)
        interleave = self.buffers.interleave
        local = [
            local_length(length, self.rank, self.world, interleave)
            for length in batch.seq_lens[: batch.num_decodes]
        ]
        fill_start(self.local_seq_lens, np.array(local, dtype=np.int32))
        return {
            kind: chunks.fill(batch, self.buffers.seq_lens) for kind, chunks in self.chunks.items()
        }

    def _metadata(self, batch: Batch, chunks: dict[int, list[ChunkTensors]]) -> None:
        """The kernels that run once a step."""
        buffers, scratch = self.buffers, self.scratch
        rows, decodes = len(batch.query_lens), batch.num_decodes
        for table in self.tables.values():
            table.map(buffers, batch)
        if decodes and not batch.padded:
            prepare_uniform_decode(
                self.local_seq_lens[:decodes],
                self.tables[1].blocks[:decodes],
                scratch.decode_seq_lens,
                scratch.expanded_block_table,
                scratch.expanded_decode_lens,
                tokens_per_request=1,
            )
        if batch.num_prefills:
            compute_prefill_metadata(
                buffers.seq_lens[:rows],
                buffers.query_start_loc[: rows + 1],
                buffers.replay_start[:rows],
                batch.num_prefills,
                decodes,
                self.config.model_config.hf_config.sliding_window,
                gather_lens=scratch.gather_lens,
            )
        for kind, table in self.tables.items():
            if kind > 1:
                compressed_slot_mapping(
                    table.slots[: batch.num_tokens],
                    buffers.query_start_loc[: rows + 1],
                    buffers.seq_lens[:rows],
                    table.blocks[:rows],
                    block_size=table.block_size // kind,
                    compress_ratio=kind,
                    dcp_world_size=self.world,
                    cp_interleave=table.interleave,
                    out=self.state_slots,
                )
        for kind, of_kind in chunks.items():
            for chunk in of_kind:
                self._chunk_metadata(kind, chunk)

    def _chunk_metadata(self, kind: int, chunk: ChunkTensors) -> None:
        scratch = self.scratch
        for start, stop in chunk.chunk.slices:
            build_prefill_chunk_metadata(
                chunk.query_start_loc,
                chunk.seq_lens,
                chunk.cu_seq_lens,
                start,
                stop,
                token_to_seq=scratch.token_to_seq[: chunk.total],
                compress_ratio=kind,
                row_starts=chunk.row_starts,
                dcp_rank=self.rank,
                dcp_world_size=self.world,
                dcp_interleave=self.chunks[kind].interleave,
                cu_seqlen_ks=scratch.starts[: stop - start],
                cu_seqlen_ke=scratch.ends[: stop - start],
            )
