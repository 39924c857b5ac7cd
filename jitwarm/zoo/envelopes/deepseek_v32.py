"""Everything that a step of DeepSeek-V3.2 can launch, on one rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from jitwarm.config import EngineConfig
from jitwarm.proof.envelope import Envelope
from jitwarm.zoo.envelopes.block_tables import slot_mapping
from jitwarm.zoo.envelopes.decodes import corrected_output, pack, uniform_decode, unpack
from jitwarm.zoo.envelopes.dense_prefill import dense_prefill
from jitwarm.zoo.envelopes.prefills import chunk_metadata, prefill_metadata
from jitwarm.zoo.envelopes.selected_tokens import candidates, token_rows


def deepseek_v32(
    config: EngineConfig,
    *,
    indexer_dtype: torch.dtype,
    window: int,
    select: Any,
    longest_dense: int | None,
    sparse: bool,
    sparse_prefills: bool,
    max_scores: int,
) -> Iterator[Envelope]:
    """In the order of a step.

    `longest_dense` are the tokens of the longest request that is prefilled densely (None: there is
    no dense prefill), `sparse_prefills` says whether any prefill selects, `sparse` whether decodes
    do; `select` is the twin of StableTopK.
    """
    model, block_size = config.model_config.hf_config, config.cache_config.block_size
    world = config.parallel_config.decode_context_parallel_size
    yield slot_mapping(config, block_size=block_size)
    if sparse:
        yield uniform_decode(config, block_size=block_size)
        yield prefill_metadata(config, window=window)
        yield from chunk_metadata(config, max_scores=max_scores)
        yield pack(config, dtype=indexer_dtype)
        yield unpack(config)
        if world > 1:
            yield from candidates(
                config, select=select, prefills=sparse_prefills, max_scores=max_scores
            )
        yield from token_rows(
            config,
            block_size=block_size,
            dense_prefills=longest_dense is not None,
            sparse_prefills=sparse_prefills,
        )
    if world > 1:
        heads = model.num_attention_heads // config.parallel_config.tensor_parallel_size
        yield corrected_output(config, heads=heads * world, head_dim=model.kv_lora_rank)
    if longest_dense is not None:
        yield from dense_prefill(config, longest=longest_dense)
