"""The block tables of a model runner: one for each KV-cache group, each with slots of its own.

Each registers ComputeSlotMapping when it is made, for the block size of its group. State groups
(the running state of a compressor) neither register nor run it.
"""

from __future__ import annotations

import torch

from jitwarm.config import EngineConfig
from jitwarm.registry import owner
from jitwarm.traffic import Batch
from jitwarm.zoo.kernels.compute_slot_mapping import (
    ComputeSlotMapping,
    block_table_width,
    compute_slot_mapping,
)
from jitwarm.zoo.steps.step_buffers import BatchBuffers, random_blocks

# Before the KV cache is laid out the runner makes one table for the engine's default block.
PLACEHOLDER_BLOCK_SIZE = 16


def register_block_table(config: EngineConfig, group: int, block_size: int) -> None:
    """Register the slot mapping of group `group`; of an owner, the later registration holds."""
    parallel = config.parallel_config
    with owner(f"block_tables.{group}"):
        ComputeSlotMapping.register_warmup(
            kv_cache_block_size=block_size,
            total_cp_world_size=parallel.decode_context_parallel_size,
            total_cp_rank=parallel.dcp_rank,
            cp_kv_cache_interleave_size=_interleave(config, block_size),
            block_table_stride=_width(config, block_size),
        )


class BlockTable:
    """The table of one group: blocks int32 [max_num_seqs, width], slots int64 [max tokens]."""

    def __init__(self, config: EngineConfig, group: int, block_size: int, device: str) -> None:
        """Register, and allocate; `block_size` in tokens."""
        register_block_table(config, group, block_size)
        scheduler, parallel = config.scheduler_config, config.parallel_config
        self.block_size = block_size
        self.width = _width(config, block_size)
        self.blocks = random_blocks(config, scheduler.max_num_seqs, self.width, device)
        self.slots = torch.full(
            (scheduler.max_num_batched_tokens,), -1, dtype=torch.int64, device=device
        )
        self.world, self.rank = parallel.decode_context_parallel_size, parallel.dcp_rank
        self.interleave = _interleave(config, block_size)

    def map(self, buffers: BatchBuffers, batch: Batch) -> None:
        """Launch the slot mapping of a batch."""
        compute_slot_mapping(
            buffers.query_start_loc[: len(batch.query_lens) + 1],
            buffers.positions[: batch.num_tokens],
            self.blocks,
            self.slots,
            kv_cache_block_size=self.block_size,
            total_cp_world_size=self.world,
            total_cp_rank=self.rank,
            cp_kv_cache_interleave_size=self.interleave,
        )


def _width(config: EngineConfig, block_size: int) -> int:
    world = config.parallel_config.decode_context_parallel_size
    return block_table_width(config.model_config.max_model_len, block_size, world)


def _interleave(config: EngineConfig, block_size: int) -> int:
    """A turn ends with its block: it cannot be longer."""
    return min(config.parallel_config.cp_kv_cache_interleave_size, block_size)
