"""What decides a field of flash-attention 4's own keys, for whoever has to declare a call."""

from __future__ import annotations

from jitwarm.backends.fa4.library import INTERFACE

_LENGTHS = (
    "it follows from the lengths of the call: warm up one with the fewest and one with the most "
    "query tokens of a request"
)
_OPTIONAL = "it says which optional tensors a call passes: warm up a call with the same ones"
_LAYOUT = "an expanded tensor (stride 0) is another kernel: warm up with the layout of the launch"
_SOURCE = (
    "it is a hash of the function's source and of what it captures: pass the same function each "
    "time, and run-time numbers as tensors"
)
_HINTS = {
    **dict.fromkeys(
        ("tile_m", "tile_n", "q_stage", "num_threads", "pack_gqa", "static_persistent"), _LENGTHS
    ),
    **dict.fromkeys(("split_kv", "log_max_splits", "two_cta", "s_ping_pong"), _LENGTHS),
    **dict.fromkeys(
        ("lse", "cu_seqlens_q", "cu_seqlens_k", "cu_seqlens", "seqused_q", "seqused_k"), _OPTIONAL
    ),
    **dict.fromkeys(("page_table", "learnable_sink", "seqused", "qv"), _OPTIONAL),
    "broadcast": _LAYOUT,
    "score_mod": _SOURCE,
    "mask_mod": _SOURCE,
    "paged_kv_tma": "it follows from the page size: warm up with the page size of the launch",
    "num_sms": "the number of SMs is built in: warm up on the model of GPU that launches",
    "log_level": "set FA_LOG_LEVEL alike at start-up and while serving",
}


def advise_call(path: str, name: str) -> str:
    """What decides the field `name` of a key of the library's function at `path`; empty for other
    kernels, and where the field is plain from the call.
    """
    hint = _HINTS.get(name, "") if path.startswith(f"{INTERFACE}.") else ""
    return f"`{name}`: {hint}" if hint else ""
