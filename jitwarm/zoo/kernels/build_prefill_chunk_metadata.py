"""BuildPrefillChunkMetadata: the range of compressed states each query of a prefill chunk may see.

A chunk holds whole requests; of its query tokens one slice is processed. r tokens share one
compressed state. For request q with queries [s, e), n = e - s, and token j whose index a = s + j
in the chunk lies in the slice, o = a - slice start:

    length = (uncompressed_seq_lens[q] - n + 1 + j) // r
    W > 1: base = length // I // W * I,  length = base + clip(length - base*W - rank*I, 0, I)
    ks[o]  = row_starts[q],   ke[o] = row_starts[q] + length
    token_to_seq[cu[q] : cu[q + 1]] = q,   cu = cu_compressed_seq_lens

W ranks take turns of I states (decode context parallel); the local lengths add up to the global
one. row_starts is cu without DCP and this rank's own cumulative lengths with it; cu is the global
one always. Prefill-context-parallel runs this as rank 0 of 1 on a global plan with row_starts of
its own.

Shapes, all int32: query_start_loc [Q+1] (rebased to the chunk), uncompressed_seq_lens [Q],
cu_compressed_seq_lens [Q+1], row_starts [Q or more], token_to_seq [cu[Q]], ks and ke [slice stop
- slice start]. Requires uncompressed_seq_lens >= n and slice bounds within the chunk. An empty
slice, and requests without queries, are legal; a chunk without compressed states launches
nothing.

Callers and reachable classes
-----------------------------
The metadata builder of a sparse indexer, once for each slice of each prefill chunk of a step. At
W = 1 it passes the plain interleave, whose value is unused while its class still counts.

* query_start_loc_ptr: fresh: the chunk's part, rebased. Classes: aligned.
* uncompressed_seq_lens_ptr: `seq_lens[first request : last request]`, behind the decode requests.
  Classes: both: aligned where the first request % 4 == 0.
* cu_compressed_seq_lens_ptr: cumulative lengths of the chunk, fresh. Classes: aligned.
* row_starts_ptr: W = 1: cu_compressed_seq_lens itself; W > 1 or a global plan: fresh local sums.
  Classes: aligned.
* token_to_seq_ptr, cu_seqlen_ks_ptr, cu_seqlen_ke_ptr: fresh. Classes: aligned.
* query_slice_start: 0 for the first slice, else a multiple of the slice's rows, which are the
  bound on scores // keys: 1 only if a context can have more than half of that many keys. Classes:
  16; 2 where the longest request of a step is sliced.
* query_slice_stop: the next start, or the chunk's end. Classes: 16, 2; 1 for one query alone.
* dcp_rank, dcp_world_size, dcp_interleave: fixed by the configuration and the process. Classes:
  one set of classes for each ratio.
* COMPRESS_RATIO: 1 for a plain indexer, else the ratio of the layer. Classes: the distinct ratios
  of the indexers.

The engine that the kernel comes from may also slice the cumulative lengths, and declares every
class of every bound with every interleave: `as_published=True` does so too.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (kernel arguments have no Python types)

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.contract import (
    TritonJitKernel,
    TritonPointerInputVariant,
    TritonWarmupTensor,
    kernel_launcher,
    triton_scalar_specialization_rep,
    zip_inputs,
)
from jitwarm.declare import NoKeys
from jitwarm.errors import BindingError
from jitwarm.zoo.steps.limits import Limits
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES
from jitwarm.zoo.steps.slice_bounds import slice_classes

BLOCK_SIZE = 1024


@triton.jit
def _build_prefill_chunk_metadata(
    query_start_loc_ptr,
    uncompressed_seq_lens_ptr,
    cu_compressed_seq_lens_ptr,
    row_starts_ptr,
    token_to_seq_ptr,
    cu_seqlen_ks_ptr,
    cu_seqlen_ke_ptr,
    query_slice_start,
    query_slice_stop,
    dcp_rank,
    dcp_world_size,
    dcp_interleave,
    BLOCK_SIZE: tl.constexpr,
    COMPRESS_RATIO: tl.constexpr,
):
    request = tl.program_id(0)
    lane = tl.arange(0, BLOCK_SIZE)
    first = tl.load(query_start_loc_ptr + request)
    end = tl.load(query_start_loc_ptr + request + 1)
    context = tl.load(uncompressed_seq_lens_ptr + request) - (end - first)
    row_start = tl.load(row_starts_ptr + request)

    # `while`, not `range`: the interpreter of Triton 3.6 takes no run-time bound under numpy 2.4.
    query = tl.maximum(first, query_slice_start)
    query_stop = tl.minimum(end, query_slice_stop)
    while query < query_stop:
        position = query + lane
        inside = position < query_stop
        length = (context + 1 + position - first) // COMPRESS_RATIO
        if dcp_world_size > 1:
            own = length // dcp_interleave // dcp_world_size * dcp_interleave
            rest = length - own * dcp_world_size - dcp_rank * dcp_interleave
            length = own + tl.minimum(tl.maximum(rest, 0), dcp_interleave)
        target = position - query_slice_start
        tl.store(cu_seqlen_ks_ptr + target, row_start + tl.zeros_like(length), mask=inside)
        tl.store(cu_seqlen_ke_ptr + target, row_start + length, mask=inside)
        query += BLOCK_SIZE

    token = tl.load(cu_compressed_seq_lens_ptr + request)
    token_stop = tl.load(cu_compressed_seq_lens_ptr + request + 1)
    while token < token_stop:
        target = token + lane
        owner = request + tl.zeros_like(target)
        tl.store(token_to_seq_ptr + target, owner, mask=target < token_stop)
        token += BLOCK_SIZE


class BuildPrefillChunkMetadataKernel(
    TritonJitKernel["BuildPrefillChunkMetadataKernel.CompileKey"]
):
    """Builds the metadata of one slice of a prefill chunk; see the module's text."""

    kernel = _build_prefill_chunk_metadata
    kernel_name = "BuildPrefillChunkMetadata"

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """Five integers by class (1, 16 or 2), the constexprs, the alignment of two pointers."""

        query_slice_start: int
        query_slice_stop: int
        dcp_rank: int
        dcp_world_size: int
        dcp_interleave: int
        block_size: int
        compress_ratio: int
        input_variant: TritonPointerInputVariant

    def dispatch(
        self,
        *,
        query_slice_start: int,
        query_slice_stop: int,
        dcp_rank: int,
        dcp_world_size: int,
        dcp_interleave: int,
        compress_ratio: int,
        seq_lens_aligned: bool,
        cu_seq_lens_aligned: bool,
    ) -> CompileKey:
        """The key of a launch; the flags say whether 16 divides the address of the lengths."""
        cls = triton_scalar_specialization_rep
        return self.CompileKey(
            cls(query_slice_start),
            cls(query_slice_stop),
            cls(dcp_rank),
            cls(dcp_world_size),
            cls(dcp_interleave),
            BLOCK_SIZE,
            compress_ratio,
            TritonPointerInputVariant.from_alignment(
                uncompressed_seq_lens=seq_lens_aligned, cu_compressed_seq_lens=cu_seq_lens_aligned
            ),
        )

    def get_warmup_keys(
        self,
        config: Any,
        *,
        ratios: Iterable[int] | None = None,
        max_scores: int = MAX_SCORES,
        as_published: bool = False,
    ) -> list[CompileKey] | NoKeys:
        """The slices that a step of this engine can have, behind decodes or not, for each ratio.

        `ratios` are those of the indexers (default: all of the model), `max_scores` what bounds a
        chunk. `as_published` gives every class of both bounds, all interleaves with all ratios and
        the four alignments.
        """
        parallel = config.parallel_config
        ranks = parallel.decode_context_parallel_size
        worlds = [(parallel.dcp_rank if ranks > 1 else 0, ranks)]
        if getattr(parallel, "prefill_context_parallel_size", 1) > 1 and ranks > 1:
            worlds.append((0, 1))  # a global plan, localised nowhere
        world = zip_inputs(*({"dcp_rank": r, "dcp_world_size": w} for r, w in worlds))
        chosen = _ratios(config) if ratios is None else _distinct(ratios)
        if as_published:
            return self._as_published(config, world, chosen)
        rows = [row for ratio in chosen for row in _slices(config, ratio, max_scores)]
        if not rows:
            return NoKeys("no context of this engine holds a state of these ratios")
        return self._trace_dispatch(self.dispatch)(
            world, zip_inputs(*rows), cu_seq_lens_aligned=True
        )

    def _as_published(self, config: Any, world: Any, ratios: Iterable[int]) -> list[CompileKey]:
        interleave = config.parallel_config.cp_kv_cache_interleave_size
        interleaves = _distinct(interleave // r for r in ratios if interleave % r == 0)
        # A slice ends anywhere up to the chunk's end: these three show each class that it can have.
        longest = min(max(config.scheduler_config.max_num_batched_tokens, 1), 8)
        return self._trace_dispatch(self.dispatch)(
            world,
            query_slice_start=(0, 1, 2),
            query_slice_stop=(1, 2 * longest - 1, 2 * longest),
            dcp_interleave=interleaves or (interleave,),
            compress_ratio=tuple(ratios),
            seq_lens_aligned=(True, False),
            cu_seq_lens_aligned=(True, False),
        )

    def warmup_inputs(self, key: CompileKey) -> dict[str, Any]:
        """Arguments of a call that has this key; without DCP the row starts are absent."""

        def tensor() -> Any:
            return TritonWarmupTensor(torch.int32, shape=(16,))

        variant = key.input_variant
        alone = key.dcp_world_size == 1
        return {
            "query_start_loc": tensor(),
            "uncompressed_seq_lens": variant.pointer("uncompressed_seq_lens", torch.int32, (15,)),
            "cu_compressed_seq_lens": variant.pointer("cu_compressed_seq_lens", torch.int32, (16,)),
            "query_slice_start": key.query_slice_start,
            "query_slice_stop": key.query_slice_stop,
            "compress_ratio": key.compress_ratio,
            "row_starts": None if alone else tensor(),
            "dcp_rank": key.dcp_rank,
            "dcp_world_size": key.dcp_world_size,
            "dcp_interleave": key.dcp_interleave,
            "token_to_seq": tensor(),
            "cu_seqlen_ks": tensor(),
            "cu_seqlen_ke": tensor(),
        }

    @kernel_launcher
    def __call__(
        self,
        query_start_loc: torch.Tensor,
        uncompressed_seq_lens: torch.Tensor,
        cu_compressed_seq_lens: torch.Tensor,
        query_slice_start: int,
        query_slice_stop: int,
        *,
        token_to_seq: torch.Tensor,
        compress_ratio: int = 1,
        row_starts: torch.Tensor | None = None,
        dcp_rank: int = 0,
        dcp_world_size: int = 1,
        dcp_interleave: int = 1,
        cu_seqlen_ks: torch.Tensor | None = None,
        cu_seqlen_ke: torch.Tensor | None = None,
    ) -> Any:
        """Fill token_to_seq [cu[Q]], ks and ke [stop - start], and return the three.

        `row_starts` is by default cu_compressed_seq_lens; ks and ke are allocated if absent.
        Raises `BindingError` (a ValueError) for tensors that do not fit each other.
        """
        num_reqs = uncompressed_seq_lens.shape[0]
        if cu_seqlen_ks is None:
            cu_seqlen_ks = token_to_seq.new_empty(query_slice_stop - query_slice_start)
        if cu_seqlen_ke is None:
            cu_seqlen_ke = token_to_seq.new_empty(query_slice_stop - query_slice_start)
        if row_starts is None:
            row_starts = cu_compressed_seq_lens
        if not (
            query_start_loc.shape[0] > num_reqs
            and cu_compressed_seq_lens.shape[0] > num_reqs
            and row_starts.shape[0] >= num_reqs
            and cu_seqlen_ks.shape[0] >= query_slice_stop - query_slice_start
            and cu_seqlen_ke.shape[0] >= query_slice_stop - query_slice_start
        ):
            raise BindingError(
                f"{self.kernel_name}: {num_reqs} requests need {num_reqs + 1} entries of "
                f"query_start_loc and cu_compressed_seq_lens and {num_reqs} of row_starts, and the "
                f"slice {query_slice_start}:{query_slice_stop} its length of ks and ke"
            )
        key = self.dispatch(
            query_slice_start=query_slice_start,
            query_slice_stop=query_slice_stop,
            dcp_rank=dcp_rank,
            dcp_world_size=dcp_world_size,
            dcp_interleave=dcp_interleave,
            compress_ratio=compress_ratio,
            seq_lens_aligned=uncompressed_seq_lens.data_ptr() % 16 == 0,
            cu_seq_lens_aligned=cu_compressed_seq_lens.data_ptr() % 16 == 0,
        )
        launch = {
            "row_starts_ptr": row_starts,
            "cu_seqlen_ks_ptr": cu_seqlen_ks,
            "cu_seqlen_ke_ptr": cu_seqlen_ke,
            "BLOCK_SIZE": key.block_size,
        }
        grid = (num_reqs,) if token_to_seq.shape[0] and num_reqs else None
        return grid, launch, (token_to_seq, cu_seqlen_ks, cu_seqlen_ke)


def _slices(config: Any, ratio: int, max_scores: int) -> list[dict[str, object]]:
    """One slice of each class for an indexer of this ratio, whose lengths are aligned, or not."""
    parallel = config.parallel_config
    interleave = parallel.cp_kv_cache_interleave_size
    if parallel.decode_context_parallel_size > 1:
        if interleave % ratio:
            return []  # turns would tear states apart: no such indexer is sharded
        interleave //= ratio
    limits = Limits.of(config)
    return [
        {
            "query_slice_start": start,
            "query_slice_stop": stop,
            "dcp_interleave": interleave,
            "compress_ratio": ratio,
            "seq_lens_aligned": aligned,
        }
        for aligned in (True, False)
        for start, stop in slice_classes(
            limits, aligned=aligned, ratio=ratio, max_scores=max_scores
        )
    ]


def _ratios(config: Any) -> tuple[int, ...]:
    """The distinct ratios of a model and its indexer's pool; 0 and 1 both compress nothing."""
    model = config.model_config.hf_config
    declared = tuple(getattr(model, "compress_ratios", None) or (1,))
    return _distinct(max(1, r) for r in (*declared, getattr(model, "index_kpool", 1)))


def _distinct(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))


build_prefill_chunk_metadata = BuildPrefillChunkMetadataKernel()
