"""FA4MLAPrefill: attention of MLA's prefill over expanded keys and values.

Requests lie one behind the other, without padding; scale = qk_dim ** -0.5. Causal for the new
tokens (as many keys as queries a request), not causal for a chunk of context, whose result is
merged by its log-sum-exp.

Shapes: q [Tq, H, QK], k [Tk, H, QK], v [Tk, H, V], cu_q and cu_k int32 [B + 1]; out [Tq, H, V];
lse float32 [H, Tq]. bfloat16 or float16. v is a slice of the joint projection [Tk, H, nope + V]:
any strides that are multiples of 16 bytes are taken as they are, others are copied by the library.
Head dims (QK, V): SM90 multiples of 8 up to 256; SM100 the same up to 128, (192, 128), (256, 256).

Callers and reachable classes
-----------------------------
Each MLA layer: once for the new tokens, once for each chunk of context. What the library keys on:

* q, k, v: fresh, v a slice with a stride of nope + V a head. Classes: the dtype, both head dims.
* causal, return_lse: (True, False), (True, True) and (False, True): a context without log-sum-exps
  could not be merged. Classes: 3.
* max_q, max_k, the batch: one or more tiles of queries; a batch of more than 256 prefills, which
  takes a table of requests. On SM100 also one or two tiles an item, split or not. With splits two
  helpers: a schedule, keyed on the warps that the batch takes, and a combine kernel, on the next
  power of two of the splits (at least 32; 16 up to 64 values).
* num_splits: 0 lets the library choose, 1 (batch-invariant) does not. On SM90 the library splits
  never, whatever is asked.

The declared keys are probes, points whose calls reach binaries: the library's own key is coarser.
There is one for each way in which the library cuts up a launch that the limits of the engine admit
(`fa4_mla_launches`). With `as_published=True` they are the probes of the engine that the kernel
comes from, which are the same for all limits. These have launches without a mask and without
log-sum-exps, which no step makes, and on SM100 miss what long prompts, full devices, few heads and
large batches need:

* more queries than two tiles (over 256 tokens): not persistent, unlike one and two tiles;
* few splits of a long context (64 key tiles a split), where one head dim serves all of q, k and v;
* head dim 256 where the heads of a batch fill the device: no pair of SMs shares a tile;
* helpers of up to 4 heads, whose batches are split in more ways than two;
* more than 256 prefills.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from jitwarm import device
from jitwarm.backends.fa4 import library
from jitwarm.backends.fa4.kernel import FA4JitKernel, starts_of_requests
from jitwarm.backends.fa4.launch import forward
from jitwarm.backends.fa4.recipe import FA4Recipe
from jitwarm.contract import NoKeys, zip_inputs
from jitwarm.declare import TensorSpec
from jitwarm.declare.tensor import dtype_name
from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.fa4_mla_launches import PrefillLimits, launch_of_each_cut
from jitwarm.zoo.kernels.fa4_mla_splits import Attention

Shape = tuple[int, int, int]
PROBES = ((1, 128), (129, 512), (1, 4096), (129, 4096), (1, 8192), (129, 8192))
CONTEXT_ROWS = 65536  # keys of a context in one launch, unless a registration says otherwise
LIBRARY_VERSION = 4


class FA4MLAPrefillKernel(FA4JitKernel["FA4MLAPrefillKernel.CompileKey"]):
    """Prefill attention with more dims in queries and keys than in values."""

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """One probe: the shapes and arguments of a call."""

        q_shape: Shape
        k_shape: Shape
        v_shape: Shape
        q_dtype: str
        max_seqlen_q: int
        max_seqlen_k: int
        softmax_scale: float
        causal: bool
        fa_version: int
        v_stride: Shape | None
        cu_seqlens_q_shape: tuple[int]
        cu_seqlens_k_shape: tuple[int]
        window_size: tuple[int, int] | None
        return_softmax_lse: bool
        num_splits: int

    def dispatch(
        self,
        *,
        num_heads: int,
        qk_nope_head_dim: int,
        qk_head_dim: int,
        v_head_dim: int,
        dtype: str,
        max_q: int,
        max_k: int,
        causal: bool,
        return_lse: bool,
        num_splits: int,
        batch: int = 1,
    ) -> CompileKey:
        """The probe of `batch` requests with `max_q` queries and `max_k` keys each."""
        joint = qk_nope_head_dim + v_head_dim
        return self.CompileKey(
            (batch * max_q, num_heads, qk_head_dim),
            (batch * max_k, num_heads, qk_head_dim),
            (batch * max_k, num_heads, v_head_dim),
            dtype,
            max_q,
            max_k,
            qk_head_dim**-0.5,
            causal,
            LIBRARY_VERSION,
            (num_heads * joint, joint, 1),
            (batch + 1,),
            (batch + 1,),
            None,
            return_lse,
            num_splits,
        )

    def get_warmup_keys(
        self,
        config: Any,
        *,
        batch_invariant: bool | None = None,
        longest: int | None = None,
        contexts: int = CONTEXT_ROWS,
        as_published: bool = False,
    ) -> list[CompileKey] | NoKeys:
        """The probes of this device.

        `batch_invariant` forbids splits, whose number depends on the batch (default: the
        configuration's option of that name, else False). `longest` is the most tokens of a request
        that is served densely, its context included (default: the model's limit), `contexts` the
        most keys of a context in one launch. `as_published` declares the probes of the engine that
        the kernel comes from (see above), whatever the limits.
        """
        hf = config.model_config.hf_config
        arch = device.current().arch
        if batch_invariant is None:
            batch_invariant = bool(dict(config.options).get("batch_invariant", False))
        if reason := _no_kernel(config, arch, may_split=not batch_invariant):
            return NoKeys(reason)
        if as_published:
            qk, v = hf.qk_nope_head_dim + hf.qk_rope_head_dim, hf.v_head_dim
            most = 512 if batch_invariant else 4096 if arch == "sm90" or qk == v else 8192
            rows = [
                {"max_q": q, "max_k": k, "batch": 1, "causal": causal, "return_lse": lse}
                for q, k in PROBES
                if k <= most
                for causal in (False, True)
                for lse in (False, True)
            ]
        else:
            limits = prefill_limits(config, longest, contexts)
            if min(limits.requests, limits.tokens, limits.longest) <= 0:
                return NoKeys(f"no prefill is possible ({limits})")
            attention = attention_of(config, may_split=not batch_invariant)
            rows = [dataclasses.asdict(one) for one in launch_of_each_cut(attention, limits)]
        return self._trace_dispatch(self.dispatch)(
            zip_inputs(*rows), **constants(config), num_splits=1 if batch_invariant else 0
        )

    def recipe(self, key: CompileKey) -> FA4Recipe:
        """A call of this key with two tokens of the first request and one of each other: the
        library keys on the limits, which are arguments of their own.
        """
        tokens = key.cu_seqlens_q_shape[0]
        tensors = {
            "q": TensorSpec(key.q_dtype, shape=(tokens, *key.q_shape[1:])),
            "k": TensorSpec(key.q_dtype, shape=(tokens, *key.k_shape[1:])),
            "v": TensorSpec(key.q_dtype, shape=(tokens, *key.v_shape[1:]), strides=key.v_stride),
        }
        return FA4Recipe(
            tuple(
                _arguments(
                    **tensors,
                    cu_q=TensorSpec("int32", shape=key.cu_seqlens_q_shape, init=starts_of_requests),
                    cu_k=TensorSpec("int32", shape=key.cu_seqlens_k_shape, init=starts_of_requests),
                    max_q=key.max_seqlen_q,
                    max_k=key.max_seqlen_k,
                    causal=key.causal,
                    return_lse=key.return_softmax_lse,
                    num_splits=_allowed(key.num_splits),
                ).items()
            )
        )

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_q: torch.Tensor,
        cu_k: torch.Tensor,
        max_q: int,
        max_k: int,
        *,
        causal: bool,
        return_lse: bool = False,
        num_splits: int = 0,
    ) -> Any:
        """Attend; returns out, or (out, lse).

        `num_splits=1` is batch-invariant mode.
        Raises `BindingError` (a ValueError) for tensors that do not fit each other.
        """
        if (
            q.shape[1:] != k.shape[1:]
            or k.shape[:2] != v.shape[:2]
            or cu_q.shape != cu_k.shape
            or not q.dtype == k.dtype == v.dtype
        ):
            raise BindingError(
                f"{self.kernel_name}: needs q [Tq, H, QK], k [Tk, H, QK] and v [Tk, H, V] of one "
                f"dtype, cu_q and cu_k of one length, got {tuple(q.shape)} {q.dtype}, "
                f"{tuple(k.shape)} {k.dtype}, {tuple(v.shape)} {v.dtype}, {tuple(cu_q.shape)} and "
                f"{tuple(cu_k.shape)}"
            )
        out, lse = forward(
            **_arguments(
                q=q,
                k=k,
                v=v,
                cu_q=cu_q,
                cu_k=cu_k,
                max_q=max_q,
                max_k=max_k,
                causal=causal,
                return_lse=return_lse,
                num_splits=_allowed(num_splits),
            )
        )
        return (out, lse) if return_lse else out


def _arguments(
    *,
    q: Any,
    k: Any,
    v: Any,
    cu_q: Any,
    cu_k: Any,
    max_q: int,
    max_k: int,
    causal: bool,
    return_lse: bool,
    num_splits: int,
) -> dict[str, Any]:
    """The library's arguments: warm-up and serving pass the same ones."""
    return {
        "q": q,
        "k": k,
        "v": v,
        "cu_seqlens_q": cu_q,
        "cu_seqlens_k": cu_k,
        "max_seqlen_q": max_q,
        "max_seqlen_k": max_k,
        "softmax_scale": q.shape[-1] ** -0.5,
        "causal": causal,
        "num_splits": num_splits,
        "return_lse": return_lse,
    }


def _allowed(num_splits: int) -> int:
    """What to ask of the library: where it cannot split, letting it choose fails."""
    return num_splits if device.current().arch.startswith(("sm10", "sm11")) else 1


def constants(config: Any) -> dict[str, Any]:
    """The inputs of `dispatch` that a configuration fixes."""
    hf = config.model_config.hf_config
    dtype = dtype_name(config.model_config.dtype)
    return {
        "num_heads": hf.num_attention_heads // config.parallel_config.tensor_parallel_size,
        "qk_nope_head_dim": hf.qk_nope_head_dim,
        "qk_head_dim": hf.qk_nope_head_dim + hf.qk_rope_head_dim,
        "v_head_dim": hf.v_head_dim,
        "dtype": dtype if dtype in {"bfloat16", "float16"} else "bfloat16",
    }


def attention_of(config: Any, *, may_split: bool) -> Attention:
    """What is the same in all launches of a configuration on the current device.

    Needs the library where the number of SMs matters.
    """
    fixed, arch = constants(config), device.current().arch
    sms = library.num_sms() if arch.startswith(("sm10", "sm11")) else 0
    dims = fixed["qk_head_dim"], fixed["v_head_dim"]
    return Attention(fixed["num_heads"], *dims, arch, sms, may_split)


def prefill_limits(config: Any, longest: int | None, contexts: int) -> PrefillLimits:
    """The limits of the engine's prefills; see `get_warmup_keys` for `longest` and `contexts`."""
    scheduler, most = config.scheduler_config, config.model_config.max_model_len
    return PrefillLimits(
        scheduler.max_num_seqs,
        scheduler.max_num_batched_tokens,
        most if longest is None else min(longest, most),
        contexts,
    )


def _no_kernel(config: Any, arch: str, *, may_split: bool) -> str:
    """Why there is no kernel for a configuration; empty if there is one."""
    fixed = constants(config)
    heads, dims = fixed["num_heads"], (fixed["qk_head_dim"], fixed["v_head_dim"])
    if heads <= 0:
        return f"no heads on this rank ({heads})"
    if not _has_kernel(arch, *dims):
        return f"flash-attn-4 has no kernel for head dims {dims} on {arch}"
    if arch.startswith("sm12") and may_split:
        return f"flash-attn-4 cannot split on {arch}: batch-invariant mode only"
    return ""


def _has_kernel(arch: str, qk: int, v: int) -> bool:
    """Whether version 4 of the library has these head dims, multiples of 8, on `arch`."""
    if qk % 8 or v % 8 or min(qk, v) < 8:
        return False
    if arch == "sm90":
        return max(qk, v) <= 256
    if arch.startswith("sm10"):
        return max(qk, v) <= 128 or (qk, v) in {(192, 128), (256, 256)}
    return arch.startswith("sm12")


fa4_mla_prefill = FA4MLAPrefillKernel()
