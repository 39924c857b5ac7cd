"""The persistent buffers of a model runner: larger than any batch, filled once a step, sliced as
engines slice them.

Slices decide keys: `seq_lens[num_decodes:]` starts at an address that 16 does not divide unless
num_decodes is a multiple of 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from jitwarm.config import EngineConfig
from jitwarm.traffic import Batch
from jitwarm.zoo.kernels.compute_slot_mapping import block_table_width
from jitwarm.zoo.models.prefill_chunks import PrefillChunk, local_length, prefill_chunks


@dataclass(frozen=True, slots=True)
class ChunkTensors:
    """Device metadata of one prefill chunk, each tensor an aligned allocation of its own (a row of
    a scratch matrix).

    query_start_loc int32 [Q+1] rebased to the chunk, cu_seq_lens int32 [Q+1] global, row_starts
    int32 [Q+1] local; `context` is the number of key columns of this rank.
    """

    chunk: PrefillChunk
    query_start_loc: torch.Tensor
    cu_seq_lens: torch.Tensor
    row_starts: torch.Tensor | None
    seq_lens: torch.Tensor
    total: int
    context: int


class StepBuffers:
    """Batch metadata on the device. One fill a step; all layers read the same slices."""

    def __init__(self, config: EngineConfig, device: str) -> None:
        """Allocate for the largest batch that the scheduler admits."""
        scheduler, parallel = config.scheduler_config, config.parallel_config
        rows, tokens = scheduler.max_num_seqs, scheduler.max_num_batched_tokens
        self.world, self.rank = parallel.decode_context_parallel_size, parallel.dcp_rank
        self.interleave = parallel.cp_kv_cache_interleave_size
        self.width = block_table_width(
            config.model_config.max_model_len, config.cache_config.block_size, self.world
        )
        self.seq_lens = _ints(rows, device)
        self.query_start_loc = _ints(rows + 1, device)
        self.positions = torch.zeros(tokens, dtype=torch.int64, device=device)
        self.req_id = _ints(tokens, device)
        self.slot_mapping = torch.full((tokens,), -1, dtype=torch.int64, device=device)
        generator = torch.Generator(device="cpu").manual_seed(0)
        self.block_table = torch.randint(
            config.cache_config.num_blocks,
            (rows, self.width),
            dtype=torch.int32,
            generator=generator,
        ).to(device)
        self.decode_lens = torch.ones(rows, dtype=torch.int32, device=device)
        self.replay_start = _ints(rows, device)
        # Rows of a multiple of 32 int32: each row starts at an address that 16 divides, as a fresh
        # allocation does.
        self._stride = -(-(rows + 1) // 32) * 32
        self._chunks = torch.zeros(0, self._stride, dtype=torch.int32, device=device)

    def fill(self, batch: Batch) -> list[ChunkTensors]:
        """Copy a batch to the device; returns the metadata of its prefill chunks."""
        query_lens = np.asarray(batch.query_lens, dtype=np.int32)
        seq_lens = np.asarray(batch.seq_lens, dtype=np.int32)
        starts = np.zeros(len(query_lens) + 1, dtype=np.int32)
        np.cumsum(query_lens, out=starts[1:])
        req_id = np.repeat(np.arange(len(query_lens), dtype=np.int32), query_lens)
        first = np.maximum(seq_lens - query_lens, 0)
        positions = np.arange(starts[-1], dtype=np.int64) - starts[req_id] + first[req_id]
        _copy(self.seq_lens, seq_lens)
        _copy(self.query_start_loc, starts)
        _copy(self.req_id, req_id)
        _copy(self.positions, positions)
        decodes = batch.num_decodes
        chunks = list(prefill_chunks(batch.query_lens[decodes:], batch.seq_lens[decodes:]))
        self._reserve(3 * len(chunks))
        return [self._chunk_tensors(chunk, index, decodes) for index, chunk in enumerate(chunks)]

    def _chunk_tensors(self, chunk: PrefillChunk, index: int, decodes: int) -> ChunkTensors:
        count = len(chunk.query_lens)
        local = [
            local_length(length, self.rank, self.world, self.interleave)
            for length in chunk.seq_lens
        ]
        table = np.zeros((3, count + 1), dtype=np.int32)
        np.cumsum(
            np.array([chunk.query_lens, chunk.seq_lens, local], dtype=np.int32),
            axis=1,
            out=table[:, 1:],
        )
        rows = self._chunks[3 * index : 3 * index + 3, : count + 1]
        rows.copy_(torch.from_numpy(table))
        return ChunkTensors(
            chunk,
            query_start_loc=rows[0],
            cu_seq_lens=rows[1],
            row_starts=rows[2] if self.world > 1 else None,
            seq_lens=self.seq_lens[decodes + chunk.first : decodes + chunk.last],
            total=int(table[1, -1]),
            context=max(int(table[2, -1]), 1),
        )

    def _reserve(self, rows: int) -> None:
        if rows > self._chunks.shape[0]:
            self._chunks = self._chunks.new_zeros(rows, self._stride)


def _ints(count: int, device: str) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32, device=device)


def _copy(target: torch.Tensor, values: np.ndarray[tuple[int], np.dtype[np.integer]]) -> None:
    target[: len(values)].copy_(torch.from_numpy(values))
