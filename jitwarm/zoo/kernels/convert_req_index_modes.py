"""Modes in which ConvertReqIndexToGlobalIndex is launched: they follow from the configuration."""

from __future__ import annotations

from typing import Any

Mode = tuple[bool, bool, bool, bool, tuple[int, int, int]]


def launch_modes(config: Any, *, prefills: bool, as_published: bool) -> list[dict[str, object]]:
    """Inputs of `dispatch`, one mapping for each mode of a configuration.

    `prefills` says whether any prefill selects. `as_published` gives the modes of every backend
    and cache.
    """
    parallel = config.parallel_config
    ranks = parallel.decode_context_parallel_size
    spread = (
        ranks,
        parallel.dcp_rank if ranks > 1 else 0,
        parallel.cp_kv_cache_interleave_size,
    )
    alone = (1, 0, 1)
    # Prefill workspace, index map, count, compact, how tokens are spread.
    in_place: Mode = (False, False, False, False, alone)
    counted: Mode = (False, False, True, True, alone)
    workspace: Mode = (True, False, True, True, alone)
    filtered: Mode = (False, False, True, ranks > 1, spread)
    modes: list[Mode]
    if as_published:
        modes = [in_place, counted, workspace, (False, False, True, False, spread), filtered]
    elif ranks > 1:
        modes = [filtered]
    else:
        is_fp8 = config.cache_config.cache_dtype.startswith("fp8")
        modes = [workspace if is_fp8 else in_place, counted] if prefills else [counted]
    if getattr(parallel, "prefill_context_parallel_size", 1) > 1 and ranks > 1:
        modes.append((True, False, True, True, spread))
    if getattr(config, "hierarchical_sparse_config", None) is not None:
        modes += [(False, True, False, False, alone), (False, True, True, True, alone)]
    return [_inputs(mode) for mode in modes]


def _inputs(mode: Mode) -> dict[str, object]:
    prefill, mapping, count, compact, (size, rank, interleave) = mode
    return {
        "has_prefill_workspace": prefill,
        "has_idx_mapping": mapping,
        "count_valid": count,
        "compact_to_front": compact,
        "dcp_size": size,
        "dcp_rank": rank,
        "dcp_interleave": interleave,
    }
