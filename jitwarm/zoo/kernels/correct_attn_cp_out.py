"""CorrectAttnCPOut: weighs a rank's attention output by its share of the softmax over all ranks.

N ranks each attended to their own shard; lses [N, B, H] are the gathered log-sum-exps, i is this
rank. With base e (or 2):

    L[n]      = lses[n, b, h], and -inf where that is NaN or +inf
    lse       = m + log(sum_n exp(L[n] - m)),   m = max_n L[n], or 0 if that is -inf
    f         = exp(lses[i, b, h] - lse), and 0 where the difference is NaN or +inf
    out[b, h] = outputs[b, h] * f, exactly 0 where f is 0;   vlse[b, h] = lse

The outputs of all ranks then add up to the attention over the whole context. A row without any
context has lse = -inf.

Shapes: outputs and the result [B, H, D], lses float32 [N, B, H], vlse float32 [B, H]; D and N
powers of two. vlse is addressed with the last two strides of lses, so it has to be allocated with
them. Any strides work. Math in float32, one rounding to the output dtype. The result may be
written over `outputs`, which is the default. Offsets are 64-bit.

Callers and reachable classes
-----------------------------
The DCP manager of an MLA layer, once a layer, after the all-gather; a cross-rank sum follows. B
is the number of decode tokens, H the heads of this rank times W (the query was gathered over the
group).

* outputs_ptr, new_output_ptr: fresh output of the attention kernel, contiguous; the same tensor
  twice. Classes: the output dtype; aligned.
* lses_ptr: fresh result of the all-gather, float32, contiguous. Classes: aligned.
* vlse_ptr: fresh, with the strides of lses. Classes: aligned.
* outputs strides: (H*D, D, 1). Classes: (16, 16, 1) where D is a multiple of 16.
* lses strides: (B*H, H, 1). Classes: H a multiple of 16: (16, 16, 1); else the first is 16, 2 or
  1 by B*H.
* lse_idx: the DCP rank. Classes: one class a process: rank 0 and multiples of 16 are 16, rank 1
  is 1, any other is 2.
* HEAD_DIM, N_ROUNDED, IS_BASE_E: fixed by the model and the attention backend. Classes: one set.

The engine that the kernel comes from declares the lse_idx of every rank, and as many tokens as a
step has: `as_published=True` does so too. A process is one rank, and corrects its decode tokens.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (kernel arguments have no Python types)

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.contract import (
    TritonJitKernel,
    TritonWarmupTensor,
    WarmupIntRange,
    kernel_launcher,
    triton_scalar_specialization_rep,
)
from jitwarm.declare import NoKeys
from jitwarm.declare.tensor import dtype_name
from jitwarm.errors import BindingError

ALIGNMENT_PERIOD = 16  # classes of strides repeat after this many tokens


@triton.jit
def _correct_attn_cp_out(
    outputs_ptr,
    new_output_ptr,
    lses_ptr,
    vlse_ptr,
    outputs_stride0,
    outputs_stride1,
    outputs_stride2,
    lses_stride0,
    lses_stride1,
    lses_stride2,
    lse_idx,
    HEAD_DIM: tl.constexpr,
    N_ROUNDED: tl.constexpr,
    IS_BASE_E: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    inf = float("inf")

    row = token * lses_stride1 + head * lses_stride2
    lses = tl.load(lses_ptr + row + tl.arange(0, N_ROUNDED) * lses_stride0).to(tl.float32)
    lses = tl.where((lses != lses) | (lses == inf), -inf, lses)
    top = tl.max(lses, axis=0)
    top = tl.where(top == -inf, 0.0, top)
    if IS_BASE_E:
        lse = top + tl.log(tl.sum(tl.exp(lses - top), axis=0))
    else:
        lse = top + tl.log2(tl.sum(tl.exp2(lses - top), axis=0))
    tl.store(vlse_ptr + row, lse)

    own = tl.load(lses_ptr + row + lse_idx * lses_stride0).to(tl.float32) - lse
    own = tl.where((own != own) | (own == inf), -inf, own)
    if IS_BASE_E:
        factor = tl.exp(own)
    else:
        factor = tl.exp2(own)

    place = token * outputs_stride0 + head * outputs_stride1
    place += tl.arange(0, HEAD_DIM) * outputs_stride2
    value = tl.load(outputs_ptr + place).to(tl.float32) * factor
    # An empty shard may have left NaN in its output: 0 times it must be 0.
    value = tl.where(factor == 0.0, 0.0, value)
    tl.store(new_output_ptr + place, value.to(new_output_ptr.dtype.element_ty))


class CorrectAttnCPOutKernel(TritonJitKernel["CorrectAttnCPOutKernel.CompileKey"]):
    """Corrects one rank's attention output; see the module's text."""

    kernel = _correct_attn_cp_out
    kernel_name = "CorrectAttnCPOut"

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """Dtypes by name, strides and index by their class (1, 16 or 2), the rest constexprs."""

        output_dtype: str
        lse_dtype: str
        outputs_stride_b: int
        outputs_stride_h: int
        outputs_stride_d: int
        lses_stride_n: int
        lses_stride_b: int
        lses_stride_h: int
        lse_idx: int
        head_dim: int
        n_rounded: int
        is_base_e: bool

    @functools.lru_cache(maxsize=4096, typed=True)  # noqa: B019 - the instance is a singleton
    def dispatch(
        self,
        *,
        output_dtype: Any,
        lse_dtype: Any,
        outputs_strides: tuple[int, int, int],
        lses_strides: tuple[int, int, int],
        lse_idx: int,
        head_dim: int,
        num_ranks: int,
        is_base_e: bool,
    ) -> CompileKey:
        """The key of a launch; strides in elements, dtypes as torch dtypes or their names.

        Raises `BindingError` (a ValueError) if the kernel has no such shape or rank.
        """
        for what, value in (("head_dim", head_dim), ("the number of ranks", num_ranks)):
            if value < 1 or value & (value - 1):
                raise BindingError(
                    f"{self.kernel_name}: {what} must be a power of two, not {value}"
                )
        if not 0 <= lse_idx < num_ranks:
            raise BindingError(
                f"{self.kernel_name}: lse_idx {lse_idx} is not one of {num_ranks} ranks"
            )
        cls = triton_scalar_specialization_rep
        return self.CompileKey(
            dtype_name(output_dtype),
            dtype_name(lse_dtype),
            cls(outputs_strides[0]),
            cls(outputs_strides[1]),
            cls(outputs_strides[2]),
            cls(lses_strides[0]),
            cls(lses_strides[1]),
            cls(lses_strides[2]),
            cls(lse_idx),
            head_dim,
            num_ranks,
            is_base_e,
        )

    def get_warmup_keys(
        self,
        config: Any,
        *,
        output_dtype: Any = None,
        num_heads: int | None = None,
        head_dim: int | None = None,
        is_base_e: bool | None = None,
        gathered_heads: int | None = None,
        as_published: bool = False,
    ) -> list[CompileKey] | NoKeys:
        """The keys of contiguous outputs and lses of this rank's decode tokens, one a request.

        `num_heads` are the heads of a rank (default: heads / TP), of which the tensor has W times
        as many, unless `gathered_heads` says how many it has. `output_dtype` is by default the
        model's, `head_dim` the model's v_head_dim, and both bases are declared by default.
        `as_published` gives every rank's keys, of up to `max_num_batched_tokens` tokens.
        """
        parallel, model = config.parallel_config, config.model_config
        ranks = parallel.decode_context_parallel_size
        if ranks <= 1:
            return NoKeys("no decode context parallelism: one rank holds the whole context")
        if num_heads is None:
            num_heads = model.hf_config.num_attention_heads // parallel.tensor_parallel_size
        heads = num_heads * ranks if gathered_heads is None else gathered_heads
        # Classes repeat, so more tokens than one period bring no new one.
        tokens = min(ALIGNMENT_PERIOD, config.scheduler_config.max_num_batched_tokens)
        if not as_published:
            tokens = min(tokens, config.scheduler_config.max_num_seqs)
        if tokens <= 0 or heads <= 0:
            return NoKeys(f"no tokens or no heads to correct ({tokens} tokens, {heads} heads)")
        dim = model.hf_config.v_head_dim if head_dim is None else head_dim

        def of_batch(
            *, num_tokens: int, lse_idx: int, is_base_e: bool
        ) -> CorrectAttnCPOutKernel.CompileKey:
            return self.dispatch(
                output_dtype=model.dtype if output_dtype is None else output_dtype,
                lse_dtype=torch.float32,
                outputs_strides=(heads * dim, dim, 1),
                lses_strides=(num_tokens * heads, heads, 1),
                lse_idx=lse_idx,
                head_dim=dim,
                num_ranks=ranks,
                is_base_e=is_base_e,
            )

        return self._trace_dispatch(of_batch)(
            num_tokens=WarmupIntRange(1, tokens + 1),
            lse_idx=WarmupIntRange(0, ranks) if as_published else parallel.dcp_rank,
            is_base_e=(True, False) if is_base_e is None else is_base_e,
        )

    def warmup_inputs(self, key: CompileKey) -> dict[str, Any]:
        """Arguments of a call that has this key: a class stands for itself as a stride."""
        dtype, lse_dtype = getattr(torch, key.output_dtype), getattr(torch, key.lse_dtype)
        out_strides = (key.outputs_stride_b, key.outputs_stride_h, key.outputs_stride_d)
        lse_strides = (key.lses_stride_n, key.lses_stride_b, key.lses_stride_h)
        return {
            "outputs": TritonWarmupTensor(dtype, shape=(2, 2, key.head_dim), strides=out_strides),
            "lses": TritonWarmupTensor(lse_dtype, shape=(key.n_rounded, 2, 2), strides=lse_strides),
            "lse_idx": key.lse_idx % 16,  # 0 is of class 16, and always a rank
            "is_base_e": key.is_base_e,
            "vlse": TritonWarmupTensor(lse_dtype, shape=(2, 2), strides=lse_strides[1:]),
        }

    @kernel_launcher
    def __call__(
        self,
        outputs: torch.Tensor,
        lses: torch.Tensor,
        lse_idx: int,
        *,
        is_base_e: bool = True,
        new_output: torch.Tensor | None = None,
        vlse: torch.Tensor | None = None,
    ) -> Any:
        """Correct `outputs` and return (corrected outputs, merged lse).

        The result is written over `outputs` unless `new_output` (same dtype and strides) is given;
        `vlse` (last two strides of `lses`) is allocated if absent. Tensors with an extra dimension
        of one go through `squeeze_gathered` first.
        Raises `BindingError` (a ValueError) for tensors that do not fit each other.
        """
        num_tokens, num_heads, head_dim = outputs.shape
        num_ranks, lse_tokens, lse_heads = lses.shape
        out_strides, lse_strides = outputs.stride(), lses.stride()
        fits = lse_tokens == num_tokens and lse_heads == num_heads
        if new_output is None:
            new_output = outputs
        else:
            fits &= new_output.shape == outputs.shape and new_output.stride() == out_strides
        if vlse is None:
            vlse = torch.empty_strided(
                (num_tokens, num_heads), lse_strides[1:], dtype=lses.dtype, device=lses.device
            )
        else:
            fits &= vlse.shape == (num_tokens, num_heads) and vlse.stride() == lse_strides[1:]
        if not fits:
            raise BindingError(
                f"{self.kernel_name}: needs outputs and new_output [B, H, D] of the same strides, "
                "lses [N, B, H] and vlse [B, H] with the last two strides of lses, got "
                + ", ".join(
                    f"{tuple(t.shape)} strides {tuple(t.stride())}"
                    for t in (outputs, new_output, lses, vlse)
                )
            )
        key = self.dispatch(
            output_dtype=outputs.dtype,
            lse_dtype=lses.dtype,
            outputs_strides=out_strides,
            lses_strides=lse_strides,
            lse_idx=lse_idx,
            head_dim=head_dim,
            num_ranks=num_ranks,
            is_base_e=is_base_e,
        )
        launch = {
            "new_output_ptr": new_output,
            "vlse_ptr": vlse,
            "HEAD_DIM": head_dim,
            "N_ROUNDED": key.n_rounded,
        }
        return (num_tokens, num_heads, 1), launch, (new_output, vlse)


def squeeze_gathered(
    outputs: torch.Tensor, lses: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Views without the extra dimension of one: [B, 1, H, D], and [N, B, H, 1] or [N, 1, B, H]."""
    if outputs.ndim == 4:
        outputs = outputs.squeeze(1)
    if lses.ndim == 4:
        lses = lses.squeeze(3 if lses.shape[1:3] == outputs.shape[:2] else 1)
    return outputs, lses


def mask_empty_shards(
    lse: torch.Tensor,
    *,
    seq_lens: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
) -> torch.Tensor:
    """`lse` [B, H] with -inf where a row has no context on this rank; done before the all-gather.

    Those are the rows of requests whose local `seq_lens` [Q] is 0, and the padding rows from
    `query_start_loc` [Q+1]'s last entry on; with no request, all rows. Nothing is masked where
    neither is given. Never waits for the device.
    Raises `BindingError` (a ValueError) if only one of the two is given.
    """
    if (seq_lens is None) != (query_start_loc is None):
        raise BindingError("CorrectAttnCPOut: give seq_lens and query_start_loc together, or none")
    if seq_lens is None or query_start_loc is None:
        return lse
    if seq_lens.shape[0] == 0:
        return torch.full_like(lse, -math.inf)
    rows = torch.arange(lse.shape[0], device=lse.device, dtype=query_start_loc.dtype)
    request = torch.searchsorted(query_start_loc[1:], rows, right=True)
    empty = seq_lens[request.clamp(max=seq_lens.shape[0] - 1)] == 0
    empty |= rows >= query_start_loc[-1]
    return lse.masked_fill(empty[:, None], -math.inf)


correct_attn_cp_out = CorrectAttnCPOutKernel()
