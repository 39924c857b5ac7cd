"""InklingFA4RelAttention: paged causal attention with a bias by relative position.

For request b, its query a (absolute position i = kv_len - query_len + a) and key j, head h of the
KV head h // g (g = H / Hk):

    score = scale * q.k + (rel[t, h, i - j] if 0 <= i - j < E else 0),   scale = 1 / D
    masked where j > i, and on local layers where i - j >= E
    out   = softmax(score) v

Shapes: q [T, H, D]; k_cache, v_cache [blocks, block_size, Hk, D], usually two slices of one
[blocks, 2, block_size, Hk, D] cache; block_table int32 [B, width]; kv_lens int32 [B]; cu_q int32
[B + 1]; rel_logits [T, H, E] of any float type; out [T, H, D]. The three index tensors may be
longer: the first `num_reqs` rows count. Local layers attend to the last E keys.
q, the caches and the output are bfloat16 or float16, all of one type: flash-attn-4 takes no other
combination, so a cache of 8 bits is refused.

The kernel is flash-attn-4's forward with a score modifier that gathers the bias, on every
architecture (SM90 and SM100 families). On SM100 the split of long contexts (`inkling_splits`) adds
the library's schedule and combine kernels; on SM90 it cannot split. Every block size works; 128 is
loaded by TMA, others row by row.

Callers and reachable classes
-----------------------------
Each attention layer of the model, once a step. What the library keys on:

* q, out: fresh activations, contiguous. k_cache, v_cache: slices of the cache, all strides
  multiples of 16 bytes; block_size is reachable through "128 or not" only. Classes: one a model.
* rel_logits: fresh, contiguous. Classes: its dtype.
* block_table, kv_lens, cu_q: the first rows of the runner's buffers. Classes: one.
* max_query_len: as its bucket, of up to the new tokens of a step or the longest context. Classes:
  whether the bucket times g is at most one tile of queries
  (128 rows, or 256 on SM100, where it is two bits).
* num_reqs: more than 256 or not; with splits, the warps of the schedule kernel.
* max_kv_len: the layer's limit. Classes: through the number of splits: one, or the power of two
  (32 and more) that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from jitwarm import device
from jitwarm.backends.fa4.kernel import FA4JitKernel, starts_of_requests
from jitwarm.backends.fa4.launch import forward
from jitwarm.backends.fa4.recipe import Callback, FA4Recipe
from jitwarm.contract import NoKeys, WarmupIntRange, zip_inputs
from jitwarm.declare import TensorSpec
from jitwarm.declare.tensor import dtype_name
from jitwarm.errors import BindingError, DeclarationError
from jitwarm.zoo.kernels.inkling_splits import (
    LARGE_BATCH,
    next_query_len,
    num_splits,
    query_bucket,
    requests_of_bucket,
    warps_bucket,
)

BIAS = Callback("jitwarm.zoo.kernels.inkling_relative_bias:relative_bias")
NO_WINDOW = (-1, -1)
_FAMILIES = ("sm90", "sm10", "sm11")  # where the library has paged KV and score modifiers


class InklingFA4RelAttentionKernel(FA4JitKernel["InklingFA4RelAttentionKernel.CompileKey"]):
    """The attention of all Inkling layers, global and local."""

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """Heads are those of a rank; dtypes are names; `max_seqlen_q` is the query bucket.

        `num_warps_bucket` is None where nothing is split.
        """

        is_local: bool
        num_heads: int
        num_kv_heads: int
        head_dim: int
        rel_extent: int
        dtype: str
        kv_dtype: str
        block_size: int
        window_size: tuple[int, int]
        max_seqlen_q: int
        num_splits: int
        num_warps_bucket: int | None
        large_num_reqs: bool

    def dispatch(
        self,
        *,
        is_local: bool,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rel_extent: int,
        dtype: str,
        kv_dtype: str,
        block_size: int,
        max_kv_len: int,
        query_len: int,
        num_reqs: int,
        can_split: bool,
    ) -> CompileKey:
        """The key of a batch whose longest query has `query_len` tokens."""
        bucket = query_bucket(query_len)
        splits = num_splits(
            max_query_len=bucket,
            num_reqs=num_reqs,
            max_kv_len=max_kv_len,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            is_local=is_local,
            can_split=can_split,
        )
        return self.CompileKey(
            is_local,
            num_heads,
            num_kv_heads,
            head_dim,
            rel_extent,
            dtype,
            kv_dtype,
            block_size,
            (rel_extent - 1, 0) if is_local else NO_WINDOW,
            bucket,
            splits,
            warps_bucket(num_reqs) if splits > 1 else None,
            num_reqs > LARGE_BATCH,
        )

    def get_warmup_keys(self, config: Any) -> list[CompileKey] | NoKeys:
        """The keys of both layer kinds for every batch that the scheduler can make.

        Raises `DeclarationError` for heads that the ranks cannot share out.
        """
        cache = config.cache_config
        requests = config.scheduler_config.max_num_seqs
        tokens = config.scheduler_config.max_num_batched_tokens
        arch = device.current().arch
        if not arch.startswith(_FAMILIES):
            return NoKeys(f"flash-attn-4 has no paged attention with a score modifier for {arch}")
        if requests <= 0 or tokens <= 0:
            return NoKeys(f"no batch is possible ({requests} requests, {tokens} tokens)")
        dtype = dtype_name(config.model_config.dtype)
        if not _same_dtype(cache.cache_dtype, dtype):
            return NoKeys(
                f"flash-attn-4 takes one dtype for queries and cache; the cache is "
                f"{cache.cache_dtype}, the model {dtype}"
            )
        longest = min(tokens, config.model_config.max_model_len)

        def fits(query_len: int, num_reqs: int) -> bool:
            return bool(query_len + num_reqs <= tokens + 1)

        return self._trace_dispatch(self.dispatch)(
            zip_inputs(*(self.layer_inputs(config, is_local=local) for local in (False, True))),
            query_len=WarmupIntRange(1, longest + 1, advance=next_query_len),
            num_reqs=WarmupIntRange(1, requests + 1),
            _when=fits,
        )

    def layer_inputs(self, config: Any, *, is_local: bool) -> dict[str, Any]:
        """The inputs of `dispatch` that a configuration fixes for one kind of layers.

        Raises `DeclarationError` for heads that the ranks cannot share out.
        """
        hf, ranks = config.model_config.hf_config, config.parallel_config.tensor_parallel_size
        kv_heads = hf.local_num_key_value_heads if is_local else hf.num_key_value_heads
        dtype = dtype_name(config.model_config.dtype)
        return {
            "is_local": is_local,
            "num_heads": hf.num_attention_heads // ranks,
            "num_kv_heads": self._heads_of_a_rank(hf, kv_heads, ranks),
            "head_dim": hf.head_dim,
            "rel_extent": hf.sliding_window if is_local else hf.rel_extent,
            "dtype": dtype,
            "kv_dtype": dtype,
            "block_size": config.cache_config.block_size,
            "max_kv_len": hf.sliding_window if is_local else config.model_config.max_model_len,
            "can_split": _can_split(device.current().arch),
        }

    def recipe(self, key: CompileKey) -> FA4Recipe:
        """A call of this key with few tokens: the library keys on the limits, which are arguments
        of their own.
        """
        reqs = 1 if key.num_warps_bucket is None else requests_of_bucket(key.num_warps_bucket)
        reqs = max(reqs, LARGE_BATCH + 1) if key.large_num_reqs else reqs
        tokens = reqs + 1
        activations = TensorSpec(key.dtype, shape=(tokens, key.num_heads, key.head_dim))
        row = key.num_kv_heads * key.head_dim
        cache = TensorSpec(
            key.kv_dtype,
            shape=(2, key.block_size, key.num_kv_heads, key.head_dim),
            strides=(2 * key.block_size * row, row, key.head_dim, 1),
        )
        return FA4Recipe(
            tuple(
                _arguments(
                    q=activations,
                    k_cache=cache,
                    v_cache=cache,
                    block_table=TensorSpec("int32", shape=(reqs, 2)),
                    kv_lens=TensorSpec("int32", shape=(reqs,), init=2),
                    cu_q=TensorSpec("int32", shape=(reqs + 1,), init=starts_of_requests),
                    rel_logits=TensorSpec(key.dtype, shape=(tokens, key.num_heads, key.rel_extent)),
                    out=activations,
                    window=key.window_size,
                    max_query_len=key.max_seqlen_q,
                    max_kv_len=key.block_size,
                    splits=key.num_splits,
                    bias=BIAS,
                ).items()
            )
        )

    def __call__(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        block_table: torch.Tensor,
        kv_lens: torch.Tensor,
        cu_q: torch.Tensor,
        rel_logits: torch.Tensor,
        *,
        is_local: bool,
        max_query_len: int,
        max_kv_len: int,
        num_reqs: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attend; returns `out`, allocated if absent.

        `max_query_len` is the batch's longest query; `max_kv_len` the most keys that a request of
        this layer can ever have (the model's limit, or the extent of a local layer), so that the
        number of splits is that of the declaration.
        Raises `BindingError` (a ValueError) for tensors that do not fit each other.
        """
        tokens, heads, head_dim = q.shape
        kv_heads = k_cache.shape[2]
        if (
            q.dtype != k_cache.dtype
            or rel_logits.shape[:2] != (tokens, heads)
            or k_cache.shape != v_cache.shape
            or k_cache.shape[3] != head_dim
            or heads % kv_heads
        ):
            raise BindingError(
                f"{self.kernel_name}: needs q [T, H, D], caches [blocks, block_size, Hk, D] of "
                f"q's dtype and rel_logits [T, H, E], got {tuple(q.shape)} {q.dtype}, "
                f"{tuple(k_cache.shape)} {k_cache.dtype}, {tuple(v_cache.shape)} and "
                f"{tuple(rel_logits.shape)}"
            )
        bucket = query_bucket(max_query_len)
        extent = rel_logits.shape[2]
        splits = num_splits(
            max_query_len=bucket,
            num_reqs=num_reqs,
            max_kv_len=max_kv_len,
            num_heads=heads,
            num_kv_heads=kv_heads,
            is_local=is_local,
            can_split=_can_split(device.current().arch),
        )
        if out is None:
            out = torch.empty_like(q)
        forward(
            **_arguments(
                q=q,
                k_cache=k_cache,
                v_cache=v_cache,
                block_table=block_table[:num_reqs],
                kv_lens=kv_lens[:num_reqs],
                cu_q=cu_q[: num_reqs + 1],
                rel_logits=rel_logits,
                out=out,
                window=(extent - 1, 0) if is_local else NO_WINDOW,
                max_query_len=bucket,
                max_kv_len=max_kv_len,
                splits=splits,
                bias=BIAS.resolve(),
            )
        )
        return out

    def _heads_of_a_rank(self, hf: Any, kv_heads: int, ranks: int) -> int:
        """KV heads of one rank; a head is on several ranks where there are more ranks."""
        if hf.num_attention_heads % ranks or (kv_heads % ranks and ranks % kv_heads):
            raise DeclarationError(
                f"{self.kernel_name}: {ranks} ranks cannot share {hf.num_attention_heads} heads "
                f"and {kv_heads} KV heads: the ranks must divide the heads, and ranks and KV heads "
                "one another"
            )
        return max(1, kv_heads // ranks)


def _arguments(
    *,
    q: Any,
    k_cache: Any,
    v_cache: Any,
    block_table: Any,
    kv_lens: Any,
    cu_q: Any,
    rel_logits: Any,
    out: Any,
    window: tuple[int, int],
    max_query_len: int,
    max_kv_len: int,
    splits: int,
    bias: Any,
) -> dict[str, Any]:
    """The library's arguments: warm-up and serving pass the same ones."""
    has_window = window != NO_WINDOW
    return {
        "q": q,
        "k": k_cache,
        "v": v_cache,
        "cu_seqlens_q": cu_q,
        "seqused_k": kv_lens,
        "max_seqlen_q": max_query_len,
        "max_seqlen_k": max_kv_len,
        "page_table": block_table,
        "softmax_scale": 1.0 / q.shape[-1],
        "causal": not has_window,
        "window_size_left": window[0] if has_window else None,
        "window_size_right": window[1] if has_window else None,
        "num_splits": splits,
        "score_mod": bias,
        "aux_tensors": (rel_logits,),
        "out": out,
    }


def _can_split(arch: str) -> bool:
    """The library refuses split KV on SM90."""
    return not arch.startswith("sm9")


def _same_dtype(cache_dtype: str, dtype: str) -> bool:
    names = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "auto": dtype}
    return names.get(cache_dtype, dtype_name(cache_dtype)) == dtype


inkling_fa4_rel_attention = InklingFA4RelAttentionKernel()
