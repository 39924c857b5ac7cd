"""The canonical text of the library's own compile keys.

    flash_attn.cute.interface._flash_attn_fwd[dtype=BFloat16; head_dim=192; ...]{sm_90a}

The library's keys are plain tuples; here their fields have names. A field that has the value of a
plain call (feature absent) is left out, so that the text can be read. Behind the key stands what
decides the binary too and is no part of it: the compile target, and the number of SMs where the
kernel has it built in. The hash of a score modifier is of its source and of what it captures, so
the text is the same in every process.
"""

from __future__ import annotations

from typing import Any

from jitwarm import keys
from jitwarm.backends.fa4 import library

# Name and plain value, in the order of the tuple; no plain value: always shown. Behind `!` stands
# the name of something whose absence the tuple notes.
_SHOWN = object()
_FORWARD: tuple[tuple[str, object], ...] = (
    ("mla_1cta", False),
    ("mla_1cta_kb64", False),
    ("mla_1cta_s_ahead", None),
    ("dtype", _SHOWN),
    ("head_dim", _SHOWN),
    ("head_dim_v", _SHOWN),
    ("heads_per_kv_head", _SHOWN),
    ("num_kv_heads", None),
    ("causal", _SHOWN),
    ("score_mod", False),
    ("mask_mod", False),
    ("block_sparse", False),
    ("block_sparse_broadcast", None),
    ("broadcast", _SHOWN),
    ("aux_tensors", None),
    ("aux_scalars", None),
    ("!lse", True),
    ("!cu_seqlens_q", True),
    ("!cu_seqlens_k", True),
    ("!seqused_q", True),
    ("!seqused_k", True),
    ("page_table", False),
    ("window_left", False),
    ("window_right", False),
    ("learnable_sink", None),
    ("q_descale", False),
    ("k_descale", False),
    ("v_descale", False),
    ("!sparse_cu_total_m_blocks", True),
    ("!sparse_cu_block_idx_offsets", True),
    ("tile_m", _SHOWN),
    ("tile_n", _SHOWN),
    ("q_stage", _SHOWN),
    ("num_threads", 384),
    ("split_kv", False),
    ("pack_gqa", False),
    ("arch", _SHOWN),
    ("paged_kv_tma", None),
    ("two_cta", False),
    ("q_subtile", 1),
    ("kv_subtile", 1),
    ("mma_pv_is_rs", True),
    ("intra_wg_overlap", True),
    ("clc_scheduler", False),
    ("s_ping_pong", False),
    ("num_splits_dynamic", False),
    ("rescale_threshold", 8.0),
    ("o_lo", False),
    ("virtual_batch_idx", False),
    ("num_nheads_in_l2", False),
    ("tile_count_semaphore", False),
    ("cu_total_m_blocks", False),
    ("cu_total_splits_m_blocks", False),
    ("blocks_to_batch_idx", False),
    ("seqlen_k_per_split", None),
    ("static_persistent", False),
    ("q", True),
    ("qv", False),
    ("p", False),
    ("row_max", False),
    ("gather_kv_length", None),
    ("sparse_kv", None),
    ("no_sparse_kv_bitmask", None),
    ("log_level", 0),
)
_COMBINE = (
    *("arch", "dtype", "dtype_partial", "head_dim", "num_heads", "tile_m", "k_block"),
    *("log_max_splits", "cu_seqlens", "seqused", "lse", "virtual_batch_idx"),
    *("num_splits_dynamic", "semaphore_to_reset"),
)
_SCHEDULE = (
    *("num_warps", "tile_m", "tile_n", "num_heads", "num_kv_heads", "head_dim", "head_dim_v"),
    *("causal", "pack_gqa", "pdl", "sort", "cu_seqlens_q", "cu_seqlens_k", "cu_seqlens_k_new"),
    *("seqused_q", "seqused_k", "leftpad_k", "num_m_blocks", "num_splits_dynamic"),
    *("virtual_batch_idx", "num_nheads_in_l2", "tile_count_semaphore", "blocks_per_split"),
    "zfill_padded_output",
)
_CUMSUM = (
    *("tile", "seqlen_q_multiplier", "cu_seqlens", "seqused", "num_splits_dynamic"),
    "virtual_batch_idx",
)

MAIN = "_flash_attn_fwd"
FIELDS: dict[str, tuple[tuple[str, object], ...]] = {
    MAIN: _FORWARD,
    "_flash_attn_fwd_combine": tuple((name, _SHOWN) for name in _COMBINE),
    "_get_scheduler_metadata": tuple((name, _SHOWN) for name in _SCHEDULE),
    "_compute_tile_cumsum": tuple((name, _SHOWN) for name in _CUMSUM),
    "_compute_blocks_to_batch": (),
}


def path_of(function: str) -> str:
    """The import path of one of the library's functions: the kernel's name in events."""
    return f"{library.INTERFACE}.{function}"


def key_text(function: str, key: tuple[Any, ...]) -> str:
    """The canonical text of a key in the cache of one of the library's functions.

    Fields of a version that has more or fewer of them are numbered.
    """
    fields = FIELDS[function]
    if len(fields) != len(key):
        fields = tuple((f"field{index}", _SHOWN) for index in range(len(key)))
    inner = "; ".join(
        _field(name, value)
        for (name, plain), value in zip(fields, key, strict=True)
        if plain is _SHOWN or (type(plain), plain) != (type(value), value)
    )
    settings = [library.target()]
    if _has_sms_built_in(function, key):
        settings.append(f"num_sms={library.num_sms()}")
    return f"{path_of(function)}[{inner}]{{{'; '.join(settings)}}}"


def _has_sms_built_in(function: str, key: tuple[Any, ...]) -> bool:
    """Whether a kernel sizes its grid, or its schedule, by the number of SMs of the GPU that it
    was compiled for.
    """
    if function == "_get_scheduler_metadata":
        return True
    if function != MAIN or len(key) != len(_FORWARD):
        return function == MAIN
    named = {name: value for (name, _), value in zip(_FORWARD, key, strict=True)}
    is_blackwell = named["arch"] // 10 in {10, 11}
    return is_blackwell and bool(named["static_persistent"] or named["tile_count_semaphore"])


def _field(name: str, value: Any) -> str:
    if name == "broadcast":
        return f"{name}='{' '.join(map(_pattern, value))}'"
    if name in {"score_mod", "mask_mod"} and isinstance(value, str):
        return f"{name}={value[:16]}"  # of a SHA-256
    if name.startswith("!") and isinstance(value, bool):
        return f"{name[1:]}={not value}"
    return f"{name}={_plain(value)}"


def _plain(value: Any) -> str:
    """Canonical text with bare names of classes: the compiler's number types are classes."""
    if isinstance(value, type):
        return value.__name__
    if type(value) is tuple:
        inner = ", ".join(map(_plain, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return keys.canonical(value)


def _pattern(broadcast: tuple[bool, ...] | None) -> str:
    """One tensor's dimensions, and which of them have stride 0: `4`, `4@2`; `-` for no tensor."""
    if broadcast is None:
        return "-"
    zero = [str(dim) for dim, is_zero in enumerate(broadcast) if is_zero]
    return f"{len(broadcast)}{'@' + ','.join(zero) if zero else ''}"
