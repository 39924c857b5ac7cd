"""Everything that a step of the model `dsv4-dcp` can launch, on one rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from jitwarm.config import EngineConfig
from jitwarm.proof.envelope import Envelope
from jitwarm.zoo.envelopes.block_tables import compressed_slots, slot_mapping
from jitwarm.zoo.envelopes.decodes import corrected_output, pack, uniform_decode, unpack
from jitwarm.zoo.envelopes.prefills import chunk_metadata, prefill_metadata
from jitwarm.zoo.envelopes.selected_tokens import candidates, token_rows


def dsv4_dcp(
    config: EngineConfig,
    *,
    kinds: tuple[int, ...],
    indexer_dtype: torch.dtype,
    select: Any,
    max_scores: int,
) -> Iterator[Envelope]:
    """In the order of a step; `kinds` are tokens a state, 1 for the layers that select tokens."""
    model, block_size = config.model_config.hf_config, config.cache_config.block_size
    world = config.parallel_config.decode_context_parallel_size
    for group, kind in enumerate(kinds):
        site = f"ComputeSlotMapping of group {group}, states of {kind} tokens"
        owners = (f"block_tables.{group}",)
        yield slot_mapping(config, block_size=block_size, site=site, owners=owners)
    yield uniform_decode(config, block_size=block_size)
    yield prefill_metadata(config, window=model.sliding_window)
    for kind in kinds:
        if kind > 1:
            yield compressed_slots(config, ratio=kind, block_size=block_size)
    for kind in kinds:
        yield from chunk_metadata(config, ratio=kind, max_scores=max_scores)
    yield pack(config, dtype=indexer_dtype)
    yield unpack(config)
    if world > 1:
        yield from candidates(config, select=select, prefills=True, max_scores=max_scores)
    yield from token_rows(config, block_size=block_size, dense_prefills=False)
    if world > 1:
        heads = model.num_attention_heads // config.parallel_config.tensor_parallel_size
        yield corrected_output(config, heads=heads * world, head_dim=model.kv_lora_rank)
