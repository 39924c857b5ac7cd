"""Calls of flash-attn-4 that the tests share."""

from __future__ import annotations

from jitwarm.backends.fa4.kernel import starts_of_requests
from jitwarm.backends.fa4.keytext import FIELDS
from jitwarm.backends.fa4.recipe import FA4Recipe
from jitwarm.declare import TensorSpec


def varlen(*, tokens=2, heads=2, dim=64, max_q=1, max_k=128, causal=True, dtype="float16", **more):
    """A call on one request, without anything special."""
    tensor = TensorSpec(dtype, shape=(tokens, heads, dim))
    starts = TensorSpec("int32", shape=(2,), init=starts_of_requests)
    return FA4Recipe(
        (
            ("q", tensor),
            ("k", tensor),
            ("v", tensor),
            ("cu_seqlens_q", starts),
            ("cu_seqlens_k", starts),
            ("max_seqlen_q", max_q),
            ("max_seqlen_k", max_k),
            ("softmax_scale", dim**-0.5),
            ("causal", causal),
            *more.items(),
        )
    )


def caches(interface):
    """The caches of the library's forward path by function."""
    return {name: getattr(interface, name).compile_cache for name in FIELDS}


PLAIN_TEXT = (
    "flash_attn.cute.interface._flash_attn_fwd[dtype=Float16; head_dim=64; head_dim_v=64; "
    "heads_per_kv_head=1; causal=True; broadcast='3 3 3 - - - - - -'; cu_seqlens_q=True; "
    "cu_seqlens_k=True; tile_m=192; tile_n=128; q_stage=1; arch=90; static_persistent=True]{sm_90a}"
)
