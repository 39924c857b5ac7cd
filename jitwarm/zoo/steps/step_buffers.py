"""The persistent buffers of a model runner: larger than any batch, filled once a step, sliced as
engines slice them.

Slices decide keys: `seq_lens[num_decodes:]` starts at an address that 16 does not divide unless
num_decodes is a multiple of 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from jitwarm.config import EngineConfig
from jitwarm.traffic import Batch
from jitwarm.zoo.kernels.compute_slot_mapping import block_table_width
from jitwarm.zoo.steps.prefill_chunks import (
    MAX_SCORES,
    PrefillChunk,
    local_length,
    prefill_chunks,
)


@dataclass(frozen=True, slots=True)
class ChunkTensors:
    """Device metadata of one prefill chunk, each tensor an aligned allocation of its own (a row of
    a scratch matrix).

    query_start_loc int32 [Q+1] rebased to the chunk, cu_seq_lens int32 [Q+1] global, row_starts
    int32 [Q+1] local; `context` is the number of key columns of this rank, `total` that of all.
    Lengths of keys are in compressed states; those of seq_lens, a slice of the step's, in tokens.
    """

    chunk: PrefillChunk
    query_start_loc: torch.Tensor
    cu_seq_lens: torch.Tensor
    row_starts: torch.Tensor | None
    seq_lens: torch.Tensor
    total: int
    context: int


class BatchBuffers:
    """A batch on the device. One fill a step; all layers read the same slices.

    int32: seq_lens and replay_start [rows], query_start_loc [rows + 1], req_id [tokens]; int64:
    positions [tokens].
    """

    def __init__(self, config: EngineConfig, device: str) -> None:
        """Allocate for the largest batch that the scheduler admits."""
        scheduler = config.scheduler_config
        rows, tokens = scheduler.max_num_seqs, scheduler.max_num_batched_tokens
        self.seq_lens = _ints(rows, device)
        self.query_start_loc = _ints(rows + 1, device)
        self.positions = torch.zeros(tokens, dtype=torch.int64, device=device)
        self.req_id = _ints(tokens, device)
        self.replay_start = _ints(rows, device)

    def copy(self, batch: Batch) -> None:
        """Copy a batch to the device."""
        query_lens = np.asarray(batch.query_lens, dtype=np.int32)
        seq_lens = np.asarray(batch.seq_lens, dtype=np.int32)
        starts = np.zeros(len(query_lens) + 1, dtype=np.int32)
        np.cumsum(query_lens, out=starts[1:])
        req_id = np.repeat(np.arange(len(query_lens), dtype=np.int32), query_lens)
        first = np.maximum(seq_lens - query_lens, 0)
        positions = np.arange(starts[-1], dtype=np.int64) - starts[req_id] + first[req_id]
        fill_start(self.seq_lens, seq_lens)
        fill_start(self.query_start_loc, starts)
        fill_start(self.req_id, req_id)
        fill_start(self.positions, positions)


class IndexerChunks:
    """The prefill chunks of an indexer whose keys are states of `ratio` tokens each."""

    def __init__(
        self, config: EngineConfig, device: str, ratio: int = 1, max_scores: int = MAX_SCORES
    ) -> None:
        """Scratch that grows with the number of chunks; `max_scores` bounds one of them."""
        parallel = config.parallel_config
        self.ratio, self.max_scores = ratio, max_scores
        self.world, self.rank = parallel.decode_context_parallel_size, parallel.dcp_rank
        # Ranks take turns of whole states; one rank alone passes the configured number on.
        self.interleave = parallel.cp_kv_cache_interleave_size // (ratio if self.world > 1 else 1)
        # Rows of a multiple of 32 int32: each row starts at an address that 16 divides, as a fresh
        # allocation does.
        self._stride = -(-(config.scheduler_config.max_num_seqs + 1) // 32) * 32
        self._rows = torch.zeros(0, self._stride, dtype=torch.int32, device=device)

    def fill(self, batch: Batch, seq_lens: torch.Tensor) -> list[ChunkTensors]:
        """The chunks of a batch whose lengths are in the device buffer `seq_lens`."""
        decodes = batch.num_decodes
        states = [length // self.ratio for length in batch.seq_lens[decodes:]]
        chunks = list(prefill_chunks(batch.query_lens[decodes:], states, self.max_scores))
        if 3 * len(chunks) > self._rows.shape[0]:
            self._rows = self._rows.new_zeros(3 * len(chunks), self._stride)
        return [
            self._tensors(chunk, index, seq_lens[decodes + chunk.first : decodes + chunk.last])
            for index, chunk in enumerate(chunks)
        ]

    def _tensors(self, chunk: PrefillChunk, index: int, seq_lens: torch.Tensor) -> ChunkTensors:
        count = len(chunk.query_lens)
        local: Sequence[int] = chunk.seq_lens
        if self.world > 1:
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
        rows = self._rows[3 * index : 3 * index + 3, : count + 1]
        rows.copy_(torch.from_numpy(table))
        return ChunkTensors(
            chunk,
            query_start_loc=rows[0],
            cu_seq_lens=rows[1],
            row_starts=rows[2] if self.world > 1 else None,
            seq_lens=seq_lens,
            total=int(table[1, -1]),
            context=max(int(table[2, -1]), 1),
        )


class StepBuffers(BatchBuffers):
    """The buffers of a model with one KV-cache group and an indexer that compresses nothing."""

    def __init__(self, config: EngineConfig, device: str, max_scores: int = MAX_SCORES) -> None:
        """Allocate for the largest batch that the scheduler admits."""
        super().__init__(config, device)
        scheduler, parallel = config.scheduler_config, config.parallel_config
        rows, tokens = scheduler.max_num_seqs, scheduler.max_num_batched_tokens
        self.world, self.rank = parallel.decode_context_parallel_size, parallel.dcp_rank
        self.interleave = parallel.cp_kv_cache_interleave_size
        self.width = block_table_width(
            config.model_config.max_model_len, config.cache_config.block_size, self.world
        )
        self.slot_mapping = torch.full((tokens,), -1, dtype=torch.int64, device=device)
        self.block_table = random_blocks(config, rows, self.width, device)
        self.decode_lens = torch.ones(rows, dtype=torch.int32, device=device)
        self.chunks = IndexerChunks(config, device, max_scores=max_scores)

    def fill(self, batch: Batch) -> list[ChunkTensors]:
        """Copy a batch to the device; returns the metadata of its prefill chunks."""
        self.copy(batch)
        return self.chunks.fill(batch, self.seq_lens)


def random_blocks(config: EngineConfig, rows: int, width: int, device: str) -> torch.Tensor:
    """A block table int32 [rows, width] of existing blocks, the same in every process."""
    generator = torch.Generator(device="cpu").manual_seed(0)
    return torch.randint(
        config.cache_config.num_blocks, (rows, width), dtype=torch.int32, generator=generator
    ).to(device)


def fill_start(target: torch.Tensor, values: np.ndarray[tuple[int], np.dtype[np.integer]]) -> None:
    """Copy values to the start of a persistent buffer."""
    target[: len(values)].copy_(torch.from_numpy(values))


def _ints(count: int, device: str) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32, device=device)
