"""Dense prefill of a 61-layer MLA model on FA4MLAPrefill: attention over expanded keys and values.

What is real: every layer's prefill backend registers, the joint projection [T, heads, nope + value]
whose second part is the strided value tensor, the order and arguments of the launches. What is
generated: queries, keys and values. What is left out: projections and experts, so no token comes
out, and decodes, which other kernels serve: their rows only take part in the slot mapping.

Launch order of a step. Once: ComputeSlotMapping. In every layer, for the prefills of a batch: new
tokens among themselves; where some have contexts, one launch for each piece of these that fits the
workspace, merged with the result so far by their log-sum-exps (on a GPU).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch

from jitwarm.backends.fa4 import library
from jitwarm.config import EngineConfig, HFConfig
from jitwarm.device import Device
from jitwarm.errors import ScenarioError
from jitwarm.proof.envelope import Envelope
from jitwarm.registry import owner
from jitwarm.traffic import Batch
from jitwarm.zoo.envelopes.block_tables import slot_mapping
from jitwarm.zoo.envelopes.dense_prefill import dense_prefill
from jitwarm.zoo.kernels.fa4_mla_prefill import fa4_mla_prefill
from jitwarm.zoo.models.options import BF16, Value, model_options, refuse_unsupported
from jitwarm.zoo.steps.block_tables import (
    PLACEHOLDER_BLOCK_SIZE,
    BlockTable,
    register_block_table,
)
from jitwarm.zoo.steps.dense_prefill import DenseBatch, merge
from jitwarm.zoo.steps.step_buffers import BatchBuffers

MODEL = "mla-prefill"
# (nope, rope, value): DeepSeek-V2 and V3 first, then those of other models with this attention.
HEAD_DIMS = {
    "128-64-128": (128, 64, 128),
    "192-64-256": (192, 64, 256),
    "64-64-128": (64, 64, 128),
    "256-0-256": (256, 0, 256),
}
OPTIONS: dict[str, tuple[Value, ...]] = {
    "head_dims": tuple(HEAD_DIMS),
    "batch_invariant": (False, True),  # no splitting of keys: results do not depend on the batch
}
# Most rows of the buffer that contexts are expanded into, in tokens.
WORKSPACE = 65536


class MLAPrefill:
    """One rank of the model."""

    hf_config = HFConfig(
        num_hidden_layers=61,
        num_attention_heads=128,
        hidden_size=7168,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )

    def __init__(self, config: EngineConfig, device: Device) -> None:
        """Build every layer; each registers its kernel.

        Raises `ScenarioError` for options, heads and parallelism that the model does not have,
        and `MissingExtraError` without flash-attn-4.
        """
        options = model_options(config, OPTIONS, model=MODEL)
        refuse_unsupported(config, MODEL, cache_dtypes=BF16)
        model, parallel = config.model_config.hf_config, config.parallel_config
        heads, tp = model.num_attention_heads, parallel.tensor_parallel_size
        if heads % tp:
            problem = f"tp {tp} does not divide {heads} heads"
            raise ScenarioError(f"model {MODEL}", "$.parallel.tp", problem)
        if config.attention_backend:
            problem = "this model has only one: leave the field out"
            raise ScenarioError(f"model {MODEL}", "$.attention_backend", problem)
        # Here, so that its import of seconds belongs to no arm's first launch.
        library.interface(f"model {MODEL}")
        # One split of the keys is what makes results independent of the batch; 0: any number.
        self.num_splits = 1 if options["batch_invariant"] else 0
        self.nope, self.rope, self.value = HEAD_DIMS[options["head_dims"]]
        self.config, self.device = _with_head_dims(config, HEAD_DIMS[options["head_dims"]]), device
        self.heads, self.layers = heads // tp, model.num_hidden_layers
        longest = self.config.model_config.max_model_len
        self.workspace = min(WORKSPACE, config.scheduler_config.max_num_seqs * longest)
        register_block_table(self.config, 0, PLACEHOLDER_BLOCK_SIZE)
        for index in range(self.layers):
            with owner(f"model.layers.{index}.self_attn.prefill"):
                fa4_mla_prefill.register_warmup(self.config, contexts=self._piece(1))

    def bind_kv_cache(self) -> None:
        """The cache is allocated, its geometry is known: the block table registers for good."""
        limits, place = self.config.scheduler_config, self.device.torch_device
        self.table = BlockTable(self.config, 0, self.config.cache_config.block_size, place)
        self.buffers = BatchBuffers(self.config, place)
        tokens, key, joint = (
            limits.max_num_batched_tokens,
            self.nope + self.rope,
            self.nope + self.value,
        )
        self.queries, self.keys = self._generated(tokens, key), self._generated(tokens, key)
        self.joint = self._generated(tokens, joint)
        self.context_keys = self._generated(self.workspace, key)
        self.context_joint = self._generated(self.workspace, joint)

    def set_up(self, headline: Sequence[Batch]) -> None:
        """Every torch operator of a step once, in the shapes of the batches that are timed."""
        for batch in headline:
            self.buffers.copy(batch)
            tokens = sum(batch.prefill_chunks)
            for _ in self._parts(batch):
                out = self.queries[:tokens, :, : self.value].contiguous()
                lse = torch.zeros(self.heads, tokens, device=self.device.torch_device)
                self._merge(out, lse, out, lse)

    def step(self, batch: Batch) -> None:
        """Launch the kernels of one step."""
        self.buffers.copy(batch)
        self.table.map(self.buffers, batch)
        parts = list(self._parts(batch))
        if not parts:
            return
        tokens = parts[0].tokens
        new = (self.keys[:tokens], self.joint[:tokens, :, self.nope :])
        earlier = [
            (part, self.context_keys[:rows], self.context_joint[:rows, :, self.nope :])
            for part in parts
            if (rows := part.context_tokens)
        ]
        for _ in range(self.layers):
            output, lse = self._attend(parts[0], *new, causal=True, return_lse=bool(earlier))
            for context in earlier:
                other = self._attend(*context, causal=False, return_lse=True)
                output, lse = self._merge(output, lse, *other)

    def envelopes(self) -> Iterator[Envelope]:
        """Everything that a step can launch."""
        yield slot_mapping(self.config, block_size=self.config.cache_config.block_size)
        yield from dense_prefill(self.config, contexts=self._piece(1), num_splits=self.num_splits)

    def _attend(
        self,
        part: DenseBatch,
        keys: torch.Tensor,
        values: torch.Tensor,
        *,
        causal: bool,
        return_lse: bool,
    ) -> tuple[Any, Any]:
        """The kernel on all new tokens, and the new keys (causal) or a piece of the contexts."""
        found = fa4_mla_prefill(
            self.queries[: part.tokens],
            keys,
            values,
            part.new,
            part.new if causal else part.contexts,
            part.longest_new,
            part.longest_new if causal else part.longest_context,
            causal=causal,
            return_lse=return_lse,
            num_splits=self.num_splits,
        )
        return found if isinstance(found, tuple) else (found, None)

    def _merge(self, output: Any, lse: Any, other: Any, other_lse: Any) -> tuple[Any, Any]:
        """The result so far with one more piece of context; nothing to merge on a stub device."""
        if self.device.kind == "stub":
            return output, lse
        return merge(output, lse, other, other_lse), torch.logaddexp(lse, other_lse)

    def _parts(self, batch: Batch) -> Iterator[DenseBatch]:
        """The prefills of a batch with one piece of their contexts each; the workspace is shared
        evenly, in whole blocks, by the requests that have a context.
        """
        if not batch.prefill_chunks:
            return
        contexts = batch.prefill_contexts
        piece = self._piece(sum(1 for length in contexts if length))
        new = self._starts(batch.prefill_chunks)
        for start in range(0, max(*contexts, 1), piece):
            lengths = [min(max(length - start, 0), piece) for length in contexts]
            yield DenseBatch(
                new,
                self._starts(lengths),
                max(batch.prefill_chunks),
                max(lengths),
                sum(batch.prefill_chunks),
                sum(lengths),
            )

    def _piece(self, sharing: int) -> int:
        """Rows of the workspace for each of the requests that share it."""
        size = self.config.cache_config.block_size
        return max(self.workspace // max(sharing, 1) // size * size, 1)

    def _starts(self, lengths: Sequence[int]) -> torch.Tensor:
        place = self.device.torch_device
        return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=place)

    def _generated(self, rows: int, size: int) -> torch.Tensor:
        """A bf16 tensor [rows, heads, size]; on a stub device address space that nobody touches."""
        made = torch.empty(
            rows, self.heads, size, dtype=torch.bfloat16, device=self.device.torch_device
        )
        return made.normal_() if self.device.kind == "cuda" else made


def _with_head_dims(config: EngineConfig, dims: tuple[int, int, int]) -> EngineConfig:
    """The configuration of a model with these head dims (nope, rope, value)."""
    nope, rope, value = dims
    hf_config = replace(
        config.model_config.hf_config,
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=value,
    )
    return replace(config, model_config=replace(config.model_config, hf_config=hf_config))
