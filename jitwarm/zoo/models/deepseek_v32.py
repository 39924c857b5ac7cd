"""DeepSeek-V3.2: 61 sparse MLA layers, each with an indexer, under decode context parallelism
(DCP).

What is real: which layer registers what and when, the buffers and how they are sliced, the order
and arguments of the launches of its kernels, on this rank. What is generated: the inputs of these
kernels (projections, scores, the gathered parts of the other ranks). What is left out: projections,
attention, experts and the top-k itself, so no token comes out. With the option `tokens` on a GPU
the projections, scores, selection and attention are there too, and a token comes out; see
`deepseek_v32_tokens`.

Launch order of a step. Once: ComputeSlotMapping; PrepareUniformDecode for a decode part without
padding; ComputePrefillMetadata; BuildPrefillChunkMetadata for each slice of each prefill chunk. In
every layer: PackSeq and UnpackSeq around the decode scores; with DCP PackDCPTopkCandidates and
StableTopKFromGatheredCandidates for the decode rows and for each prefill slice;
ConvertReqIndexToGlobalIndex for all tokens; with DCP CorrectAttnCPOut for the decode tokens; with
the option `prefill = "fa4"` FA4MLAPrefill for prefills that are no longer than the selection, which
then select nothing. CompressedSlotMapping is registered as every sparse MLA layer does, and has no
keys: nothing is compressed here.

Options: `stable_topk` (`"auto"`, `"triton"`, `"cutedsl"`), `prefill` (`"sparse"`, `"fa4"`),
`tokens` (false), `scale` (1: divides hidden size, query rank and vocabulary of the token path),
`max_scores` (2**27 float32 scores of a prefill chunk: a larger request is sliced).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from jitwarm.backends.fa4 import library
from jitwarm.config import EngineConfig, HFConfig
from jitwarm.device import Device
from jitwarm.errors import ScenarioError
from jitwarm.proof.envelope import Envelope
from jitwarm.registry import owner
from jitwarm.traffic import Batch
from jitwarm.zoo.envelopes.deepseek_v32 import deepseek_v32
from jitwarm.zoo.kernels.build_prefill_chunk_metadata import build_prefill_chunk_metadata
from jitwarm.zoo.kernels.compressed_slot_mapping import compressed_slot_mapping
from jitwarm.zoo.kernels.compute_prefill_metadata import compute_prefill_metadata
from jitwarm.zoo.kernels.compute_slot_mapping import (
    ComputeSlotMapping,
    block_table_width,
    compute_slot_mapping,
)
from jitwarm.zoo.kernels.convert_req_index_to_global_index import convert_req_index_to_global_index
from jitwarm.zoo.kernels.correct_attn_cp_out import correct_attn_cp_out
from jitwarm.zoo.kernels.fa4_mla_prefill import fa4_mla_prefill
from jitwarm.zoo.kernels.pack_dcp_topk_candidates import pack_dcp_topk_candidates
from jitwarm.zoo.kernels.pack_seq import PackSeq
from jitwarm.zoo.kernels.prepare_uniform_decode import PrepareUniformDecode, prepare_uniform_decode
from jitwarm.zoo.kernels.stable_topk import stable_topk
from jitwarm.zoo.kernels.unpack_seq import UnpackSeq
from jitwarm.zoo.models.deepseek_v32_tokens import DeepSeekV32Tokens
from jitwarm.zoo.models.options import (
    BF16,
    FP8,
    OfType,
    Value,
    check_max_scores,
    model_options,
    refuse_unsupported,
)
from jitwarm.zoo.steps.dense_prefill import CONTEXT_ROWS, DensePrefill
from jitwarm.zoo.steps.indexer_slices import Bounds
from jitwarm.zoo.steps.layer_scratch import LayerScratch
from jitwarm.zoo.steps.paged_slots import check_own_blocks
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES
from jitwarm.zoo.steps.sparse_mla_launches import SparseMLALaunches
from jitwarm.zoo.steps.step_buffers import ChunkTensors, StepBuffers

# Attention backends: whether they attend to the indexer's selection. Only the selected one's
# kernels register.
BACKENDS = {"FLASHMLA_SPARSE": True, "FLASHINFER_MLA_SPARSE": True, "FLASHMLA": False}
# Before the KV cache is laid out the runner makes its block tables for the engine's default block.
PLACEHOLDER_BLOCK_SIZE = 16
INDEXER_DTYPE = torch.float8_e4m3fn
WINDOW = 128
OPTIONS: dict[str, tuple[Value, ...] | OfType] = {
    "stable_topk": ("auto", "triton", "cutedsl"),
    "prefill": ("sparse", "fa4"),
    "tokens": (False, True),
    "scale": OfType(int, 1),
    "max_scores": OfType(int, MAX_SCORES),
}


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
        q_lora_rank=1536,
        vocab_size=129280,
    )

    def __init__(self, config: EngineConfig, device: Device) -> None:
        """Build every layer; each registers its kernels.

        Raises `ScenarioError` for an attention backend or an option that the model lacks, and
        `MissingExtraError` for an option whose library is not installed.
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
        options = model_options(config, OPTIONS, model="deepseek-v3.2")
        self.config, self.device = config, device.torch_device
        self.sparse = BACKENDS[config.attention_backend]
        parallel, model = config.parallel_config, config.model_config.hf_config
        self.layers = model.num_hidden_layers
        self.world, self.rank = parallel.decode_context_parallel_size, parallel.dcp_rank
        self.local_heads = model.num_attention_heads // parallel.tensor_parallel_size
        self.stable_topk, self.fa4 = options["stable_topk"], options["prefill"] == "fa4"
        if self.fa4:
            library.interface("model deepseek-v3.2")  # its import of seconds belongs to no launch
        self.emits_token = options["tokens"] and device.kind == "cuda"
        self.scale, self.max_scores = options["scale"], options["max_scores"]
        check_max_scores(config, self.max_scores, "deepseek-v3.2")
        self._check_tokens(tokens=options["tokens"])
        refuse_unsupported(config, "deepseek-v3.2", cache_dtypes=BF16 + FP8, dcp=True)
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
                    pack_dcp_topk_candidates.register_warmup(prefills=self.selects_for_prefills)
                    stable_topk(self.stable_topk).register_warmup()
        with owner(f"{name}.self_attn"):
            if self.fa4:
                fa4_mla_prefill.register_warmup(self.config, longest=self.longest_dense)
            if self.sparse:
                compressed_slot_mapping.register_warmup()
                PrepareUniformDecode.register_warmup()
                build_prefill_chunk_metadata.register_warmup(max_scores=self.max_scores)
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
                    convert_req_index_to_global_index.register_warmup(
                        block_stride_rows=block_size, prefills=self.selects_for_prefills
                    )
        config, model = self.config, self.config.model_config.hf_config
        self.buffers = StepBuffers(config, self.device, self.max_scores)
        self.scratch = LayerScratch(
            config, self.device, self.local_heads * self.world, INDEXER_DTYPE, self.max_scores
        )
        self.launches = SparseMLALaunches(config, self.buffers, self.scratch, self.stable_topk)
        self.dense = None
        if self.fa4:
            self.dense = DensePrefill(
                model,
                self.local_heads,
                config.scheduler_config.max_num_batched_tokens,
                self.longest_dense,
                self.device,
            )
        self.tokens = None
        if self.emits_token:
            self.tokens = DeepSeekV32Tokens(
                config, self.buffers, self.scratch, self.local_heads, self.scale, self.device
            )

    def set_up(self, headline: Sequence[Batch] = ()) -> None:
        """Every torch operator of a step once: the fill of the buffers, with decodes and a sliced
        prefill, and the token path on the batches of the headline.
        """
        limits = self.config.scheduler_config
        if min(limits.max_num_seqs, limits.max_num_batched_tokens) >= 2:
            self.buffers.fill(Batch((1,), (1,), (0,)))
        self.buffers.fill(Batch((1,), (), ()))
        self.scratch.views(1)
        if self.tokens is not None:
            for batch in headline:
                chunks = self.buffers.fill(batch)
                dense = self.dense.batch(batch) if self.dense is not None else None
                self.tokens.set_up(batch, chunks, dense)

    def step(self, batch: Batch) -> None:
        """Launch the kernels of one step."""
        chunks = self.buffers.fill(batch)
        bounds = self._metadata(batch, chunks)
        dense = self.dense.batch(batch) if self.dense is not None else None
        launches = self.launches.layer(
            batch, chunks, sparse=self.sparse, dense_prefill=dense is not None
        )
        if self.tokens is not None:
            self.tokens.step(batch, chunks, bounds, launches, dense)
            return
        layer = list(launches)
        if self.dense is not None and dense is not None:
            layer += self.dense.launches(dense)
        for _ in range(self.layers):
            for launch in layer:
                launch()

    def envelopes(self) -> Iterator[Envelope]:
        """Everything that a step can launch, whatever the traffic."""
        return deepseek_v32(
            self.config,
            indexer_dtype=INDEXER_DTYPE,
            window=WINDOW,
            select=stable_topk(self.stable_topk),
            longest_dense=self.longest_dense if self.fa4 else None,
            sparse=self.sparse,
            sparse_prefills=self.selects_for_prefills,
            max_scores=self.max_scores,
        )

    @property
    def longest_dense(self) -> int:
        """Tokens of the longest request that dense attention serves as well as a selection."""
        model = self.config.model_config
        return model.hf_config.index_topk if self.sparse else model.max_model_len

    @property
    def selects_for_prefills(self) -> bool:
        """Whether any prefill is too long for dense attention, or their contexts are too many."""
        if not self.sparse or not self.fa4:
            return self.sparse
        limits, longest = self.config.scheduler_config, self.config.model_config.max_model_len
        requests = min(limits.max_num_seqs, limits.max_num_batched_tokens)
        return longest > self.longest_dense or requests * (longest - 1) > CONTEXT_ROWS

    def _check_tokens(self, *, tokens: bool) -> None:
        if tokens and (self.world > 1 or not self.sparse):
            raise ScenarioError(
                "model deepseek-v3.2",
                "$.options.tokens",
                "a token needs the whole context on this rank (dcp 1) and a sparse attention "
                "backend",
            )
        if tokens:
            check_own_blocks(self.config, "deepseek-v3.2", self.config.cache_config.block_size)

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

    def _metadata(self, batch: Batch, chunks: list[ChunkTensors]) -> list[Bounds]:
        """The kernels that run once a step.

        All slices are written to one scratch buffer; the token path gets a copy of each.
        """
        bounds: list[Bounds] = []
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
            return bounds
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
                if self.tokens is not None:
                    rows = stop - start
                    bounds.append((scratch.starts[:rows].clone(), scratch.ends[:rows].clone()))
        return bounds
