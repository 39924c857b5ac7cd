"""What the prefills of a step launch once: lengths to gather, metadata of the indexer's slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from jitwarm.config import EngineConfig
from jitwarm.proof.envelope import Envelope, Ints
from jitwarm.proof.forms import affine, next_power_of_two, pointer
from jitwarm.zoo.envelopes.indexer_slices import Slices, slices
from jitwarm.zoo.envelopes.limits import Limits
from jitwarm.zoo.envelopes.stand_ins import from_offset, from_start
from jitwarm.zoo.kernels.build_prefill_chunk_metadata import build_prefill_chunk_metadata
from jitwarm.zoo.kernels.compute_prefill_metadata import compute_prefill_metadata
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES


def prefill_metadata(config: EngineConfig, *, window: int) -> Envelope:
    """The gathered lengths of a step's prefills, behind its decodes."""
    limits = Limits.of(config)

    def launch(decodes: int, prefills: int) -> Mapping[str, Any]:
        rows = decodes + prefills
        return {
            "seq_lens": from_start(torch.int32, rows),
            "query_start_loc": from_start(torch.int32, rows + 1),
            "replay_start": from_start(torch.int32, rows),
            "num_prefills": prefills,
            "num_decodes": decodes,
            "window_size": window,
            "gather_lens": from_start(torch.int32, limits.rows),
        }

    def where(decodes: Any, prefills: Any) -> Any:
        tokens = limits.query_len * decodes + prefills
        return (decodes + prefills <= limits.rows) & (tokens <= limits.tokens)

    return Envelope(
        compute_prefill_metadata,
        "ComputePrefillMetadata of a step with prefills",
        {"decodes": Ints(0, limits.decodes), "prefills": Ints(1, limits.prefills)},
        launch,
        where=where,
        forms={"BLOCK_SIZE": next_power_of_two(affine(prefills=1))},
    )


def chunk_metadata(
    config: EngineConfig, *, ratio: int = 1, max_scores: int = MAX_SCORES
) -> Iterator[Envelope]:
    """The slices of an indexer over states of `ratio` tokens, on this rank.

    `seq_lens` is sliced at the chunk's first request, behind decodes and earlier chunks; everything
    else is fresh. The number of requests changes shapes, which no key depends on.
    """
    parallel = config.parallel_config
    world = parallel.decode_context_parallel_size
    interleave = parallel.cp_kv_cache_interleave_size // (ratio if world > 1 else 1)

    def launch_of(kind: Slices) -> Callable[..., Mapping[str, Any]]:
        def launch(behind: int, **place: int) -> Mapping[str, Any]:
            start, stop = kind.bounds(**place)
            return {
                "query_start_loc": from_start(torch.int32, 2),
                "uncompressed_seq_lens": from_offset(torch.int32, behind, 1),
                "cu_compressed_seq_lens": from_start(torch.int32, 2),
                "query_slice_start": start,
                "query_slice_stop": stop,
                "token_to_seq": from_start(torch.int32, max(stop // ratio, 1)),
                "compress_ratio": ratio,
                "row_starts": from_start(torch.int32, 2) if world > 1 else None,
                "dcp_rank": parallel.dcp_rank,
                "dcp_world_size": world,
                "dcp_interleave": interleave,
                "cu_seqlen_ks": from_start(torch.int32, stop - start),
                "cu_seqlen_ke": from_start(torch.int32, stop - start),
            }

        return launch

    for kind in slices(Limits.of(config), ratio=ratio, max_scores=max_scores):
        yield Envelope(
            build_prefill_chunk_metadata,
            f"BuildPrefillChunkMetadata, ratio {ratio}, slice {kind.name}",
            kind.parameters,
            launch_of(kind),
            where=kind.where,
            forms=kind.forms(
                uncompressed_seq_lens_ptr=pointer(offset=affine(behind=4), length=affine(1)),
                query_slice_start=kind.start,
                query_slice_stop=kind.stop,
            ),
        )
