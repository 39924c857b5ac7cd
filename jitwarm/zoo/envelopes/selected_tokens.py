"""What a layer launches for the tokens that its indexer selects: candidates of this rank, the
selection from those of all, and the rows of the cache that attention reads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from jitwarm.config import EngineConfig
from jitwarm.proof.envelope import Domain, Envelope, Ints
from jitwarm.proof.forms import affine, pointer
from jitwarm.zoo.envelopes.indexer_slices import slices
from jitwarm.zoo.envelopes.limits import Limits
from jitwarm.zoo.envelopes.stand_ins import from_offset, from_start
from jitwarm.zoo.kernels.compute_slot_mapping import block_table_width
from jitwarm.zoo.kernels.convert_req_index_to_global_index import convert_req_index_to_global_index
from jitwarm.zoo.kernels.pack_dcp_topk_candidates import pack_dcp_topk_candidates
from jitwarm.zoo.kernels.stable_topk_cutedsl import stable_topk_cutedsl
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES

INT32 = 4  # bytes


def candidates(
    config: EngineConfig, *, select: Any, prefills: bool, max_scores: int = MAX_SCORES
) -> Iterator[Envelope]:
    """The exchange of candidates between the ranks (DCP), for decode rows and, with `prefills`, for
    each slice of the prefill chunks. `select` is the twin of StableTopK that the model takes.
    """
    limits = Limits.of(config)
    decodes = {"decodes": Ints(1, limits.decodes)}
    yield _pack(config, "decode rows", decodes, None, lambda decodes: (0, decodes), affine())
    yield _select(
        config, select, "decode rows", decodes, None, lambda decodes: (0, decodes), affine()
    )
    if not prefills:
        return
    for kind in slices(limits, max_scores=max_scores):
        # A chunk's place in the batch changes no key here, so it is left out: without rows in
        # front of it a chunk can have all that it can have behind some.
        own = {name: domain for name, domain in kind.parameters.items() if name != "behind"}
        site = f"prefill rows, slice {kind.name}"
        where = functools.partial(kind.where, behind=0)
        yield _pack(config, site, own, where, kind.bounds, kind.start, with_starts=True)
        yield _select(config, select, site, own, where, kind.bounds, kind.start)


def _pack(
    config: EngineConfig,
    site: str,
    parameters: Mapping[str, Domain],
    where: Callable[..., Any] | None,
    bounds: Callable[..., tuple[int, int]],
    first: Any,
    *,
    with_starts: bool = False,
) -> Envelope:
    """`first` is the form of the first row of the step's top-k buffer."""
    parallel, topk = config.parallel_config, config.model_config.hf_config.index_topk

    def launch(**point: int) -> Mapping[str, Any]:
        start, stop = bounds(**point)
        rows = stop - start
        return {
            "logits": from_start(torch.float32, rows, 1),
            "topk_indices": from_offset(torch.int32, start * topk, rows, topk),
            "row_starts": from_start(torch.int32, rows) if with_starts else None,
            "packed": from_start(torch.float32, rows, topk, 2),
            "dcp_rank": parallel.dcp_rank,
            "dcp_world_size": parallel.decode_context_parallel_size,
            "cp_interleave": parallel.cp_kv_cache_interleave_size,
        }

    forms = None if first is None else _topk_forms("topk_indices_ptr", first, topk)
    if forms is not None and not with_starts:  # row starts are absent, the top-k stands in
        forms |= _topk_forms("row_starts_ptr", first, topk)
    site = f"PackDCPTopkCandidates of {site}"
    return Envelope(pack_dcp_topk_candidates, site, parameters, launch, where=where, forms=forms)


def _select(
    config: EngineConfig,
    select: Any,
    site: str,
    parameters: Mapping[str, Domain],
    where: Callable[..., Any] | None,
    bounds: Callable[..., tuple[int, int]],
    first: Any,
) -> Envelope:
    ranks = config.parallel_config.decode_context_parallel_size
    topk = config.model_config.hf_config.index_topk
    site = f"StableTopKFromGatheredCandidates of {site}"
    if select is stable_topk_cutedsl:  # the compiled code is the same for all rows
        one = {"topk": topk, "num_candidates": ranks * topk}
        return Envelope(select, site, {}, lambda: one)

    def launch(**point: int) -> Mapping[str, Any]:
        start, stop = bounds(**point)
        return {
            "gathered": from_start(torch.float32, stop - start, ranks * topk, 2),
            "topk": topk,
            "out": from_offset(torch.int32, start * topk, stop - start, topk),
        }

    forms = None if first is None else _topk_forms("out_ptr", first, topk)
    return Envelope(select, site, parameters, launch, where=where, forms=forms)


def _topk_forms(argument: str, first: Any, topk: int) -> dict[str, Any]:
    row = {name: INT32 * topk * factor for name, factor in first.coefficients.items()}
    return {argument: pointer(offset=affine(**row), length=affine(1))}


def token_rows(
    config: EngineConfig, *, block_size: int, dense_prefills: bool, sparse_prefills: bool = True
) -> Iterator[Envelope]:
    """Physical rows of the selected tokens: under DCP those of this rank, with counts; alone with
    counts for decodes, and for a step whose prefills select too in place or into a workspace (fp8).

    `sparse_prefills` and `dense_prefills` say whether prefills may select, and whether they may
    not: then only the decodes of a step do.
    """
    world = config.parallel_config.decode_context_parallel_size
    limits = Limits.of(config)
    only_decodes = _at_most_rows if dense_prefills else _all_rows
    yield _rows(config, block_size, "decode tokens", limits.decodes, only_decodes)
    if not sparse_prefills:
        return
    if world > 1:
        yield _rows(config, block_size, "all tokens", limits.tokens, _at_least_rows)
        return
    workspace = config.cache_config.cache_dtype.startswith("fp8")
    yield _rows(
        config,
        block_size,
        "all tokens into a workspace" if workspace else "all tokens in place",
        limits.tokens,
        _at_least_rows,
        counts=workspace,
        workspace=workspace,
    )


def _rows(
    config: EngineConfig,
    block_size: int,
    site: str,
    most: int,
    where: Callable[..., Any],
    *,
    counts: bool = True,
    workspace: bool = False,
) -> Envelope:
    """One mode, for up to `most` tokens; nothing in it changes a key."""
    limits, parallel = Limits.of(config), config.parallel_config
    world = parallel.decode_context_parallel_size
    topk = config.model_config.hf_config.index_topk
    width = block_table_width(config.model_config.max_model_len, block_size, world)

    def launch(rows: int, tokens: int) -> Mapping[str, Any]:
        return {
            "req_id": from_start(torch.int32, tokens),
            "block_table": from_start(torch.int32, rows, width),
            "token_indices": from_start(torch.int32, tokens, topk),
            "out": from_start(torch.int32, tokens, topk),
            "valid_count": from_start(torch.int32, tokens) if counts else None,
            "prefill_request_id": from_start(torch.int32, tokens) if workspace else None,
            "workspace_start": from_start(torch.int32, limits.rows) if workspace else None,
            "block_size": block_size,
            "block_stride_rows": block_size,
            "compact_to_front": counts,
            "dcp_size": world,
            "dcp_rank": parallel.dcp_rank if world > 1 else 0,
            "dcp_interleave": parallel.cp_kv_cache_interleave_size if world > 1 else 1,
        }

    return Envelope(
        convert_req_index_to_global_index,
        f"ConvertReqIndexToGlobalIndex of {site}",
        {"rows": Ints(1, limits.prefills), "tokens": Ints(1, most)},
        launch,
        where=where,
        forms={},
    )


def _all_rows(rows: Any, tokens: Any) -> Any:
    return rows == tokens


def _at_most_rows(rows: Any, tokens: Any) -> Any:
    return tokens <= rows


def _at_least_rows(rows: Any, tokens: Any) -> Any:
    return tokens >= rows
