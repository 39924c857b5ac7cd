"""What the attention kernel of an Inkling layer reads and writes: two kinds of layers, their paged
caches, and buffers for the largest batch that all layers share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitwarm.config import EngineConfig
from jitwarm.traffic import Batch
from jitwarm.zoo.steps.block_tables import BlockTable
from jitwarm.zoo.steps.step_buffers import BatchBuffers

# KV-cache groups, in the order of their block tables.
GROUPS = ("global", "local")


@dataclass(frozen=True, slots=True)
class LayerKind:
    """One kind of layers, on this rank.

    `extent` is the number of relative positions with a bias, `max_kv_len` the most keys a query
    sees, both in tokens; `group` is the index of its block table.
    """

    is_local: bool
    heads: int
    kv_heads: int
    head_dim: int
    extent: int
    max_kv_len: int

    @property
    def group(self) -> int:
        """The KV-cache group of these layers."""
        return GROUPS.index("local" if self.is_local else "global")


def layer_kinds(config: EngineConfig) -> tuple[LayerKind, ...]:
    """The kind of each layer, first to last. Heads are divided by the tensor-parallel size."""
    model, tp = config.model_config.hf_config, config.parallel_config.tensor_parallel_size
    both = [
        LayerKind(
            is_local,
            model.num_attention_heads // tp,
            max(1, kv_heads // tp),
            model.head_dim,
            extent,
            longest,
        )
        for is_local, kv_heads, extent, longest in (
            (False, model.num_key_value_heads, model.rel_extent, config.model_config.max_model_len),
            (True, model.local_num_key_value_heads, model.sliding_window, model.sliding_window),
        )
    ]
    return tuple(both[i in model.local_layer_ids] for i in range(model.num_hidden_layers))


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A batch, its copy on the device, and the block tables in the order of `GROUPS`."""

    batch: Batch
    buffers: BatchBuffers
    tables: Sequence[BlockTable]

    def slots(self, kind: LayerKind) -> torch.Tensor:
        """Slots int64 [num_tokens] of the new tokens in the caches of these layers."""
        return self.tables[kind.group].slots[: self.batch.num_tokens]


class AttentionBuffers:
    """Queries, outputs [T, heads, head_dim] and bias [T, heads, extent] of the largest batch, bf16.

    The bias is a gibibyte for 8,192 tokens and 64 heads. Where `generate` is False, as on a stub
    device, all of this is address space that nobody touches; otherwise the contents are generated,
    so that no kernel reads NaN.
    """

    def __init__(self, config: EngineConfig, device: str, *, generate: bool) -> None:
        """Allocate for the largest batch that the scheduler admits."""
        self.kinds = tuple(dict.fromkeys(layer_kinds(config)))
        self._device, self._generate, self._cache = device, generate, config.cache_config
        tokens = config.scheduler_config.max_num_batched_tokens
        heads, head_dim = self.kinds[0].heads, self.kinds[0].head_dim
        self.queries = self.generated(tokens, heads, head_dim)
        self.outputs = torch.empty_like(self.queries)
        self._bias = self.generated(tokens * heads * max(kind.extent for kind in self.kinds))

    def generated(self, *shape: int) -> torch.Tensor:
        """A bf16 tensor of normal numbers, or of nothing in particular."""
        made = torch.empty(shape, dtype=torch.bfloat16, device=self._device)
        return made.normal_() if self._generate else made

    def bias(self, kind: LayerKind, tokens: int) -> torch.Tensor:
        """The bias of a batch, [tokens, heads, extent]: the start of one buffer."""
        size = tokens * kind.heads * kind.extent
        return self._bias[:size].view(tokens, kind.heads, kind.extent)

    def cache(self, kind: LayerKind) -> torch.Tensor:
        """A paged cache, [blocks, 2, block size, kv heads, head_dim]: keys and values."""
        blocks, size = self._cache.num_blocks, self._cache.block_size
        return self.generated(blocks, 2, size, kind.kv_heads, kind.head_dim)

    def shared_caches(self) -> dict[LayerKind, torch.Tensor]:
        """One cache a kind, which saves the memory of all layers but two."""
        return {kind: self.cache(kind) for kind in self.kinds}

    def arguments(self, kind: LayerKind, step: StepInputs, cache: torch.Tensor) -> dict[str, Any]:
        """The arguments of the attention kernel: the same for all layers with this cache."""
        batch, buffers = step.batch, step.buffers
        rows, tokens = len(batch.query_lens), batch.num_tokens
        return {
            "q": self.queries[:tokens],
            "k_cache": cache[:, 0],
            "v_cache": cache[:, 1],
            "block_table": step.tables[kind.group].blocks[:rows],
            "kv_lens": buffers.seq_lens[:rows],
            "cu_q": buffers.query_start_loc[: rows + 1],
            "rel_logits": self.bias(kind, tokens),
            "is_local": kind.is_local,
            "max_query_len": max(batch.query_lens),
            "max_kv_len": kind.max_kv_len,
            "num_reqs": rows,
            "out": self.outputs[:tokens],
        }
