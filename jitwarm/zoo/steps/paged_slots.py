"""Where tokens of a request lie in a paged cache: block table entry times block size plus rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from jitwarm.config import EngineConfig
from jitwarm.errors import ScenarioError
from jitwarm.zoo.kernels.compute_slot_mapping import block_table_width


def row_slots(table: torch.Tensor, length: int, block_size: int) -> torch.Tensor:
    """Slots int64 [R, length] of positions 0..length-1 of each row of `table` int32 [R, width]."""
    position = torch.arange(length, device=table.device)
    blocks = table[:, position // block_size].long()
    return blocks * block_size + position % block_size


def slots_at(
    table: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    """Slots int64 [N] of positions int64 [N] of table rows int64 [N]."""
    blocks = table[rows, positions // block_size].long()
    return blocks * block_size + positions % block_size


def host_slots(
    table: torch.Tensor, rows: Sequence[int], lengths: Sequence[int], block_size: int
) -> torch.Tensor:
    """Slots int64 [sum(lengths)] of positions 0..length-1 of the given rows, one row after another.

    Lengths are known on the host, so nothing waits for the device.
    """
    row = np.repeat(np.asarray(rows, dtype=np.int64), lengths)
    position = np.concatenate([np.arange(n, dtype=np.int64) for n in lengths] or [row])
    index = torch.from_numpy(np.stack((row, position))).to(table.device)
    return slots_at(table, index[0], index[1], block_size)


def check_own_blocks(config: EngineConfig, model: str, block_size: int) -> None:
    """Raise `ScenarioError` if the longest requests do not fit the cache side by side: they would
    overwrite each other's keys.
    """
    limits, cache = config.scheduler_config, config.cache_config
    width = block_table_width(config.model_config.max_model_len, block_size)
    if limits.max_num_seqs * width > cache.num_blocks:
        raise ScenarioError(
            f"model {model}",
            "$.cache.num_blocks",
            f"with tokens, {limits.max_num_seqs} sequences of {width} blocks need at least "
            f"{limits.max_num_seqs * width}, got {cache.num_blocks}",
        )


def give_own_blocks(table: torch.Tensor) -> None:
    """Fill a block table int32 [R, width] so that no block serves two requests, in mixed order."""
    generator = torch.Generator(device="cpu").manual_seed(1)
    order = torch.randperm(table.numel(), generator=generator, dtype=torch.int32)
    table.copy_(order.view_as(table))
