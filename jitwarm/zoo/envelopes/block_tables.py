"""What runs once a step for each block table: slots of tokens, and of the states they complete.

Nothing here changes a key: buffers are used from their start, and the width of a table is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from jitwarm.config import EngineConfig
from jitwarm.proof.envelope import Envelope, Ints
from jitwarm.zoo.envelopes.limits import Limits
from jitwarm.zoo.envelopes.stand_ins import from_start
from jitwarm.zoo.kernels.compressed_slot_mapping import compressed_slot_mapping
from jitwarm.zoo.kernels.compute_slot_mapping import (
    ComputeSlotMapping,
    block_table_width,
    slot_mapping_launch,
)


def slot_mapping(
    config: EngineConfig,
    *,
    block_size: int,
    site: str = "ComputeSlotMapping of a step",
    owners: tuple[str, ...] = ("block_tables.0",),
) -> Envelope:
    """The slots of all tokens in a group of blocks of `block_size` tokens."""
    limits, parallel = Limits.of(config), config.parallel_config
    table, interleave = _table(config, block_size)

    def launch(rows: int, tokens: int) -> Mapping[str, Any]:
        return slot_mapping_launch(
            from_start(torch.int32, rows + 1),
            from_start(torch.int64, tokens),
            from_start(torch.int32, *table),
            from_start(torch.int64, limits.tokens),
            kv_cache_block_size=block_size,
            total_cp_world_size=parallel.decode_context_parallel_size,
            total_cp_rank=parallel.dcp_rank,
            cp_kv_cache_interleave_size=interleave,
        )

    return Envelope(
        ComputeSlotMapping, site, _step(limits), launch, where=_has_tokens, forms={}, owners=owners
    )


def compressed_slots(
    config: EngineConfig, *, ratio: int, block_size: int, owners: tuple[str, ...] = ()
) -> Envelope:
    """The slots of the states of `ratio` tokens that a step completes, in blocks of `block_size`
    tokens.
    """
    limits, parallel = Limits.of(config), config.parallel_config
    (_, width), interleave = _table(config, block_size)

    def launch(rows: int, tokens: int) -> Mapping[str, Any]:
        return {
            "slot_mapping": from_start(torch.int64, tokens),
            "query_start_loc": from_start(torch.int32, rows + 1),
            "seq_lens": from_start(torch.int32, rows),
            "block_table": from_start(torch.int32, rows, width),
            "block_size": block_size // ratio,
            "compress_ratio": ratio,
            "dcp_world_size": parallel.decode_context_parallel_size,
            "cp_interleave": interleave,
            "out": from_start(torch.int64, limits.tokens),
        }

    return Envelope(
        compressed_slot_mapping,
        f"CompressedSlotMapping of states of {ratio} tokens",
        _step(limits),
        launch,
        where=_has_tokens,
        forms={},
        owners=owners,
    )


def _step(limits: Limits) -> dict[str, Ints]:
    return {"rows": Ints(1, limits.prefills), "tokens": Ints(1, limits.tokens)}


def _has_tokens(rows: Any, tokens: Any) -> Any:
    """Each row has a new token."""
    return rows <= tokens


def _table(config: EngineConfig, block_size: int) -> tuple[tuple[int, int], int]:
    """The shape of a table, and the turns of its ranks: a turn ends with its block."""
    parallel = config.parallel_config
    width = block_table_width(
        config.model_config.max_model_len, block_size, parallel.decode_context_parallel_size
    )
    shape = config.scheduler_config.max_num_seqs, width
    return shape, min(parallel.cp_kv_cache_interleave_size, block_size)
