"""DeepSeek-V4 (Flash, 43 layers; Pro, 61): a sliding window in every layer, and behind it states of
4 tokens, of which an indexer selects some, or of 128, which are all attended to.

What is real: which layer registers what and when, the buffers and how they are sliced, the order
and arguments of the launches of the kernels (`deepseek_v4_step`). What is generated: their inputs
(projections, scores, selections, the places of images). What is left out: projections, gathering,
attention, experts, the top-k itself and the -1 that the tails of combined rows are filled with, so
no token comes out: it does with the option `tokens` on a GPU (`deepseek_v4_tokens`). The layer of
the drafting head is not built.

Options: `vision` (false), `tokens` (false), `scale` (1: divides hidden size, query rank and
vocabulary of the token path), `max_scores` (2**27 float32 scores of a chunk of the indexer's
prefill: a larger request is sliced).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from jitwarm.config import EngineConfig, HFConfig
from jitwarm.device import Device
from jitwarm.errors import ScenarioError
from jitwarm.proof.envelope import Envelope
from jitwarm.registry import owner
from jitwarm.traffic import Batch
from jitwarm.zoo.envelopes.deepseek_v4 import deepseek_v4_envelopes
from jitwarm.zoo.kernels.build_prefill_chunk_metadata import build_prefill_chunk_metadata
from jitwarm.zoo.kernels.combine_topk_swa_indices import (
    INDEXER_RATIO,
    combine_topk_swa_indices,
)
from jitwarm.zoo.kernels.compressed_slot_mapping import compressed_slot_mapping
from jitwarm.zoo.kernels.compute_dspark_noncausal_swa_indices import (
    compute_dspark_noncausal_swa_indices,
)
from jitwarm.zoo.kernels.compute_prefill_metadata import compute_prefill_metadata
from jitwarm.zoo.kernels.compute_swa_indices_and_lens import compute_swa_indices_and_lens
from jitwarm.zoo.kernels.pack_seq import PackSeq
from jitwarm.zoo.kernels.prepare_uniform_decode import PrepareUniformDecode
from jitwarm.zoo.kernels.unpack_seq import UnpackSeq
from jitwarm.zoo.models.deepseek_v4_step import WINDOW_BLOCK_SIZE, V4Step
from jitwarm.zoo.models.options import (
    BF16,
    FP8,
    OfType,
    Value,
    check_max_scores,
    model_options,
    refuse_unsupported,
)
from jitwarm.zoo.steps.block_tables import PLACEHOLDER_BLOCK_SIZE, register_block_table
from jitwarm.zoo.steps.deepseek_v4_buffers import INDEXER_DTYPE
from jitwarm.zoo.steps.paged_slots import check_own_blocks
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES

# Attention backends: whether their prefill gathers its keys, and so combines both kinds of indices.
BACKENDS = {"FLASHMLA_SPARSE": True, "FLASHINFER_MLA_SPARSE": False}
OPTIONS: dict[str, tuple[Value, ...] | OfType] = {
    "vision": (False, True),
    "tokens": (False, True),
    "scale": OfType(int, 1),
    "max_scores": OfType(int, MAX_SCORES),
}
VISION_LAYERS, MAX_IMAGE_TOKENS = 24, 1024


class DeepSeekV4:
    """One process of a model of the family; a subclass has its numbers."""

    name: ClassVar[str]
    hf_config: ClassVar[HFConfig]

    def __init__(self, config: EngineConfig, device: Device) -> None:
        """Build every layer; each registers its kernels.

        Raises `ScenarioError` for settings and options that the model lacks.
        """
        self._check(config)
        options = model_options(config, OPTIONS, model=self.name)
        self._check_tokens(config, options)
        self.emits_token = options["tokens"] and device.kind == "cuda"
        self.scale, self.max_scores = options["scale"], options["max_scores"]
        check_max_scores(config, self.max_scores, self.name)
        self.config, self.device = config, device.torch_device
        if options["vision"]:
            model = config.model_config
            with_tower = dataclasses.replace(
                model.hf_config,
                vision_n_layers=VISION_LAYERS,
                vision_max_n_token=MAX_IMAGE_TOKENS,
            )
            self.config = dataclasses.replace(
                config, model_config=dataclasses.replace(model, hf_config=with_tower)
            )
        self.combines = BACKENDS[config.attention_backend]
        self.layers = self.config.model_config.hf_config.num_hidden_layers
        # The list of ratios goes on with the layer of the drafting head. 0 and 1 compress nothing.
        compress_ratios = self.config.model_config.hf_config.compress_ratios
        self.ratios = tuple(max(1, ratio) for ratio in compress_ratios[: self.layers])
        register_block_table(config, 0, PLACEHOLDER_BLOCK_SIZE)
        for index, ratio in enumerate(self.ratios):
            self._build_layer(f"model.layers.{index}.attn", ratio)

    def bind_kv_cache(self) -> None:
        """The cache is laid out: block tables for the windows and for the states of each ratio."""
        self._step = V4Step(
            self.config,
            self.device,
            self.ratios,
            combines=self.combines,
            max_scores=self.max_scores,
        )
        if self.emits_token:
            self._step.add_tokens(self.name, self.scale)

    def set_up(self, headline: Sequence[Batch] = ()) -> None:
        """Every torch operator of a step once, in the shapes of the batches that are timed."""
        self._step.set_up(headline)

    def envelopes(self) -> Iterator[Envelope]:
        """Everything that a step can launch."""
        yield from deepseek_v4_envelopes(
            self.config,
            self.ratios,
            window_block_size=WINDOW_BLOCK_SIZE,
            combines=self.combines,
            max_scores=self.max_scores,
        )

    def step(self, batch: Batch) -> None:
        """Launch the kernels of one step."""
        self._step.run(batch)

    def _build_layer(self, name: str, ratio: int) -> None:
        model, drafts = self.config.model_config.hf_config, self.config.speculative_config
        if ratio == INDEXER_RATIO:
            with owner(f"{name}.indexer"):
                PackSeq.register_warmup(dtype=INDEXER_DTYPE, pad_value=-float("inf"))
                UnpackSeq.register_warmup()
                PrepareUniformDecode.register_warmup()
                build_prefill_chunk_metadata.register_warmup(
                    ratios=(INDEXER_RATIO,), max_scores=self.max_scores
                )
        with owner(name):
            compute_swa_indices_and_lens.register_warmup(
                window_size=model.sliding_window,
                block_size=WINDOW_BLOCK_SIZE,
                max_image_tokens=model.vision_max_n_token,
            )
            compute_prefill_metadata.register_warmup()
            if ratio > 1:
                compressed_slot_mapping.register_warmup()
            if self.combines:
                # The registry's configuration is that of the language model: it has no images.
                own: dict[str, Any] = {"config": self.config} if model.vision_n_layers else {}
                ratios = tuple(sorted(set(self.ratios)))
                combine_topk_swa_indices.register_warmup(**own, ratios=ratios)
            if drafts is not None:
                compute_dspark_noncausal_swa_indices.register_warmup(
                    window_size=model.sliding_window,
                    num_speculative_tokens=drafts.num_speculative_tokens,
                    block_size=WINDOW_BLOCK_SIZE,
                )

    def _check_tokens(self, config: EngineConfig, options: Mapping[str, Any]) -> None:
        """The token path has neither images nor drafts, and reads its prefills gathered."""
        if options["tokens"] and (
            options["vision"]
            or config.speculative_config is not None
            or not BACKENDS[config.attention_backend]
        ):
            raise ScenarioError(
                f"model {self.name}",
                "$.options.tokens",
                "tokens come without vision and drafts, and from a backend that gathers its "
                "prefill (FLASHMLA_SPARSE)",
            )
        if options["tokens"]:
            check_own_blocks(config, self.name, WINDOW_BLOCK_SIZE)

    def _check(self, config: EngineConfig) -> None:
        def require(holds: bool, path: str, problem: str) -> None:
            if not holds:
                raise ScenarioError(f"model {self.name}", path, problem)

        parallel, block_size = config.parallel_config, config.cache_config.block_size
        heads = config.model_config.hf_config.num_attention_heads
        most = max(config.model_config.hf_config.compress_ratios)
        require(
            config.attention_backend in BACKENDS,
            "$.attention_backend",
            f"unknown backend {config.attention_backend!r}: expected one of {', '.join(BACKENDS)}",
        )
        require(
            parallel.decode_context_parallel_size == 1,
            "$.parallel.dcp",
            f"refused: the indexer of this model selects states of {INDEXER_RATIO} tokens, and one "
            "that compresses cannot be sharded by decode context parallelism; set dcp = 1 (model "
            "dsv4-dcp has the kernels of this family that can be)",
        )
        refuse_unsupported(config, self.name, cache_dtypes=BF16 + FP8, drafts=True, dcp=True)
        require(
            heads % parallel.tensor_parallel_size == 0,
            "$.parallel.tp",
            f"tp {parallel.tensor_parallel_size} does not divide {heads} heads",
        )
        require(
            block_size % most == 0,
            "$.cache.block_size",
            f"a block of {block_size} tokens does not hold whole states of {most} tokens",
        )


class DeepSeekV4Flash(DeepSeekV4):
    """43 layers: 2 with a window alone, 21 with an indexer, 20 that attend to all states."""

    name = "deepseek-v4-flash"
    hf_config = HFConfig(
        num_hidden_layers=43,
        num_attention_heads=64,
        hidden_size=4096,
        qk_nope_head_dim=448,
        qk_rope_head_dim=64,
        index_topk=512,
        index_n_heads=64,
        index_head_dim=128,
        vocab_size=129280,
        compress_ratios=(0, 0, *(4, 128) * 20, 4, 0),
        head_dim=512,
        q_lora_rank=1024,
        o_lora_rank=1024,
        o_groups=8,
        sliding_window=128,
    )


class DeepSeekV4Pro(DeepSeekV4):
    """61 layers: 30 with an indexer, 31 that attend to all states."""

    name = "deepseek-v4-pro"
    hf_config = HFConfig(
        num_hidden_layers=61,
        num_attention_heads=128,
        hidden_size=7168,
        qk_nope_head_dim=448,
        qk_rope_head_dim=64,
        index_topk=1024,
        index_n_heads=64,
        index_head_dim=128,
        vocab_size=129280,
        compress_ratios=(128, *(128, 4) * 30, 0),
        head_dim=512,
        q_lora_rank=1536,
        o_lora_rank=1024,
        o_groups=16,
        sliding_window=128,
    )
