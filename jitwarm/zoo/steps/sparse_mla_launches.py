"""The launches of one sparse MLA layer of a step: all layers read the same buffers, so their slices
are taken once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jitwarm.backends.cutedsl import library
from jitwarm.config import EngineConfig
from jitwarm.traffic import Batch
from jitwarm.zoo.kernels.convert_req_index_entry_points import convert, filter_dcp
from jitwarm.zoo.kernels.correct_attn_cp_out import correct_attn_cp_out
from jitwarm.zoo.kernels.pack_dcp_topk_candidates import pack_dcp_topk_candidates
from jitwarm.zoo.kernels.pack_seq import pack_seq
from jitwarm.zoo.kernels.stable_topk import stable_topk
from jitwarm.zoo.kernels.stable_topk_cutedsl import stable_topk_cutedsl
from jitwarm.zoo.kernels.unpack_seq import unpack_seq
from jitwarm.zoo.steps.layer_scratch import LayerScratch
from jitwarm.zoo.steps.step_buffers import ChunkTensors, StepBuffers

Launch = Callable[[], object]


@dataclass(frozen=True, slots=True)
class LayerLaunches:
    """What one layer launches, in order.

    `pack` and `unpack` stand around the decode scores; `candidates` (under DCP) exchange the
    selections of the ranks; `convert` gives the physical rows of what attention reads, `correct`
    (under DCP) the decode output's share of this rank.
    """

    pack: Launch | None
    unpack: Launch | None
    candidates: tuple[Launch, ...]
    convert: Launch | None
    correct: Launch | None

    def __iter__(self) -> Iterator[Launch]:
        """All of them."""
        for launch in (self.pack, self.unpack, *self.candidates, self.convert, self.correct):
            if launch is not None:
                yield launch


class SparseMLALaunches:
    """Builds the launches of a step from its buffers."""

    def __init__(
        self, config: EngineConfig, buffers: StepBuffers, scratch: LayerScratch, topk: str
    ) -> None:
        """`topk` names the implementation of the selection from gathered candidates."""
        self.config, self.buffers, self.scratch = config, buffers, scratch
        parallel = config.parallel_config
        self.world, self.rank = parallel.decode_context_parallel_size, parallel.dcp_rank
        self.select = stable_topk(topk)
        if self.world > 1 and self.select is stable_topk_cutedsl:
            # Here, so that an import of seconds belongs to no launch.
            library.load(self.select.kernel_name)

    def layer(
        self, batch: Batch, chunks: Sequence[ChunkTensors], *, sparse: bool, dense_prefill: bool
    ) -> LayerLaunches:
        """The launches of one layer; with `dense_prefill` only decodes select and read rows."""
        decodes = batch.num_decodes
        pack = unpack = converted = correct = None
        candidates: list[Launch] = []
        if sparse and decodes:
            pack, unpack = self._pack(decodes), self._unpack(decodes)
            if self.world > 1:
                columns = min(
                    -(-self.config.model_config.max_model_len // self.world),
                    self.scratch.max_scores // decodes,
                )
                candidates += self._candidates(0, decodes, columns, with_starts=False)
        if sparse and not dense_prefill:
            if self.world > 1:
                for chunk in chunks:
                    for start, stop in chunk.chunk.slices:
                        candidates += self._candidates(start, stop, chunk.context, with_starts=True)
            converted = self._convert(batch, batch.num_tokens)
        elif sparse and decodes:
            converted = self._convert(batch, decodes)
        if self.world > 1 and decodes:
            correct = self._correct(decodes)
        return LayerLaunches(pack, unpack, tuple(candidates), converted, correct)

    def _pack(self, decodes: int) -> Launch:
        scratch, lengths = self.scratch, self.buffers.decode_lens[:decodes]
        queries, packed = scratch.queries[:decodes], scratch.packed_queries[:decodes]
        return lambda: pack_seq(queries, lengths, packed, max_len=1)

    def _unpack(self, decodes: int) -> Launch:
        scratch, lengths = self.scratch, self.buffers.decode_lens[:decodes]
        selected, topk = scratch.selected[:decodes], scratch.topk[:decodes]
        return lambda: unpack_seq(selected, lengths, topk, total=decodes)

    def _candidates(
        self, start: int, stop: int, columns: int, *, with_starts: bool
    ) -> Iterator[Launch]:
        """Candidates of some query rows from this rank, then the selection from those of all."""
        scratch, rows = self.scratch, stop - start
        scores = scratch.scores[: rows * columns].view(rows, columns)
        topk = scratch.topk[start:stop]
        packed, gathered = scratch.candidates[:rows], scratch.gathered[:rows]
        starts = scratch.starts[:rows] if with_starts else None
        yield lambda: pack_dcp_topk_candidates(
            scores,
            topk,
            starts,
            packed,
            dcp_rank=self.rank,
            dcp_world_size=self.world,
            cp_interleave=self.buffers.interleave,
        )
        count = topk.shape[1]
        yield lambda: self.select(gathered, topk=count, out=topk)

    def _convert(self, batch: Batch, tokens: int) -> Launch:
        """Physical rows of the selected tokens: with counts for decodes, in place for a bf16
        prefill, by rank under DCP.
        """
        scratch, buffers = self.scratch, self.buffers
        block_size = self.config.cache_config.block_size
        req_id, table = buffers.req_id[:tokens], buffers.block_table[: len(batch.query_lens)]
        topk, rows, counts = scratch.topk[:tokens], scratch.rows[:tokens], scratch.counts[:tokens]
        if self.world > 1:
            return lambda: filter_dcp(
                req_id,
                table,
                topk,
                dcp_size=self.world,
                dcp_rank=self.rank,
                dcp_interleave=buffers.interleave,
                block_size=block_size,
                num_topk_tokens=topk.shape[1],
                block_stride_rows=block_size,
                out=rows,
                valid_counts=counts,
                return_valid_counts=True,
            )
        prefill = tokens > batch.num_decodes
        workspace = prefill and self.config.cache_config.cache_dtype.startswith("fp8")
        counting = workspace or not prefill
        return lambda: convert(
            req_id,
            table,
            topk,
            block_size=block_size,
            num_topk_tokens=topk.shape[1],
            block_stride_rows=block_size,
            prefill_request_id=scratch.prefill_request_id[:tokens] if workspace else None,
            workspace_start=scratch.workspace_start if workspace else None,
            out=rows,
            valid_counts=counts if counting else None,
            return_valid_counts=counting,
        )

    def _correct(self, decodes: int) -> Launch:
        view = self.scratch.views(decodes)
        return lambda: correct_attn_cp_out(
            view.outputs, view.lses, self.rank, is_base_e=True, vlse=view.vlse
        )
