"""CombineTopkSwaIndices: rows of a gathered prefill workspace that each token attends to.

A chunk of prefill requests has its keys gathered into one buffer. Request b owns M slots of it,
from M*b on: first N compressed states, then its window region, which starts with the key at
position gs = seq_len - gather_len. A token at position p, whose topk_indices select among the
states, attends to the k selected states and to s keys of the window:

    k  = clip((p + 1) // ratio, 0, TOP_K)          complete states up to p; TOP_K = 0: window only
    ws = max(p - max(w - 1, left), 0, gs)          first position of the window
    s  = max(p + right - ws + 1, 0)
    indices[t, 0 : k]     = topk_indices[t, 0 : k] + M*b         -1 for an id outside [0, N)
    indices[t, k : k + s] = M*b + N + ws - gs + [0, 1, ... s-1]
    lens[t] = k + s

left and right are the counts of tokens of the same image before and after the token, 0 for text: an
image sees all of itself. With n new tokens of request b from query_start_loc[b], p = seq_lens[b] -
n + i for the i-th of them. t counts from the chunk's first token: query_start_loc may start
anywhere, its first entry is taken off. Nothing is written behind k + s: fill indices with -1 first.

Shapes, all int32: topk_indices [T, C], elements contiguous, rows at any stride, C >= TOP_K;
query_start_loc [R+1], seq_lens [R], gather_lens [R]; left_visible and right_visible [T] or both
absent; indices [T, width >= TOP_K + w + image tokens], elements contiguous; lens [T]. R = 0, T = 0
and requests without tokens are legal.
Limits: w is a power of two. s is at most w plus the tokens of the largest image; what an input
that breaks this would write further right is left out, lens still counts it. Workspace slots are
below 2**31; row offsets are 64-bit. On well-formed input the bounds by 0 and gs and the test of ids
change nothing.

Callers and reachable classes
-----------------------------
Every layer of an attention backend that gathers its prefill, once for each chunk of the prefill
requests of a step. Chunks are cut at multiples of 4 requests, d decode requests with their tokens
come first. Of the alignments of (topk_indices, query_start_loc, seq_lens, gather_lens), TTTT is
reached where 4 divides d and TFFT elsewhere. `as_published=True` declares FFFF besides, for callers
that slice everything themselves, and every ratio and width that the model's numbers name, as the
engine does that the kernel comes from.

* topk_indices_ptr: `topk_buffer[first token:last]`, a row is C elements; of layers that attend to
  all states `[:, :TOP_K]` of a wider buffer. Classes: aligned where 4 divides the row length, as
  index_topk and 128 do.
* query_start_loc_ptr, seq_lens_ptr: the step's, `[d + first request : d + last (+ 1)]`. Classes:
  both, and always the same one: aligned where 4 divides d. A step of one request has no d.
* gather_lens_ptr: fresh, of the prefill requests only, `[first request:last]`. Classes: aligned.
* left_visible_ptr, right_visible_ptr: text: topk_indices stands in; images: the step's own,
  `[first token:last]`, at any offset. Classes: alignment is not specialised.
* indices_ptr, lens_ptr: fresh, or scratch from its start. Classes: aligned.
* two row strides, slots_per_request, compressed_slots: any. Classes: i32, unspecialised.
* TOP_K, COMPRESS_RATIO, PADDED_TOP_K: fixed by the layer; a ratio that attends to all states takes
  the narrowest of the widths 128, 256, 512, ... up to the longest context's that holds the states
  of the chunk's longest request. Classes: those, of the ratios that layers have: the list of a
  model may go on with a drafting head that is not built.
* WINDOW_SIZE: fixed by the model. Classes: one.
* IMAGE_WIDTH: 0 for a batch without images, else the tokens of the largest image. Classes: 0; both
  for a vision model.

Not declared, and compiled on first use: topk_indices with rows that are no multiple of 4 entries
(FTTT, FFFT), gather_lens sliced where its number of requests is no
multiple of 4 (TTTF, TFFF), and outputs that are slices at odd offsets.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (kernel arguments have no Python types)

from __future__ import annotations

import functools
import itertools
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
    zip_inputs,
)
from jitwarm.declare import NoKeys
from jitwarm.errors import BindingError

WORKERS = 256  # programs that share the tokens of a request
INDEXER_RATIO = 4  # layers of this ratio select states; those of a larger one attend to all
ROW_STEP = 128  # row widths are multiples of it
DEFAULT_WINDOW = 128
POINTERS = ("topk_indices", "query_start_loc", "seq_lens", "gather_lens")
Alignment = tuple[bool, bool, bool, bool]
WHOLE, BEHIND_DECODES = (True, True, True, True), (True, False, False, True)
PUBLISHED_ALIGNMENTS = (WHOLE, BEHIND_DECODES, (False, False, False, False))


@triton.jit(
    do_not_specialize=[
        "topk_indices_stride0",
        "indices_stride0",
        "slots_per_request",
        "compressed_slots",
    ],
    # One element at a time is read through these, and the caller slices them anywhere.
    do_not_specialize_on_alignment=["left_visible_ptr", "right_visible_ptr"],
)
def _combine_topk_swa_indices(
    topk_indices_ptr,
    query_start_loc_ptr,
    seq_lens_ptr,
    gather_lens_ptr,
    left_visible_ptr,
    right_visible_ptr,
    indices_ptr,
    lens_ptr,
    topk_indices_stride0,
    indices_stride0,
    slots_per_request,
    compressed_slots,
    TOP_K: tl.constexpr,
    COMPRESS_RATIO: tl.constexpr,
    WINDOW_SIZE: tl.constexpr,
    IMAGE_WIDTH: tl.constexpr,
    PADDED_TOP_K: tl.constexpr,
):
    request = tl.program_id(0)
    chunk = tl.load(query_start_loc_ptr)
    first = tl.load(query_start_loc_ptr + request) - chunk
    end = tl.load(query_start_loc_ptr + request + 1) - chunk
    seq_len = tl.load(seq_lens_ptr + request)
    gather_start = seq_len - tl.load(gather_lens_ptr + request)
    first_slot = request * slots_per_request
    # `while`, not `range`: the interpreter of Triton 3.6 takes no run-time bound under numpy 2.4.
    token = first + tl.program_id(1)
    while token < end:
        position = seq_len - end + token
        row = token.to(tl.int64)
        out_row = indices_ptr + row * indices_stride0
        selected = 0
        if TOP_K > 0:
            selected = tl.minimum(tl.maximum((position + 1) // COMPRESS_RATIO, 0), TOP_K)
            column = tl.arange(0, PADDED_TOP_K)
            topk_row = topk_indices_ptr + row * topk_indices_stride0
            state = tl.load(topk_row + column, mask=column < selected, other=-1)
            known = (state >= 0) & (state < compressed_slots)
            tl.store(
                out_row + column, tl.where(known, state + first_slot, -1), mask=column < selected
            )
        reach = WINDOW_SIZE - 1
        after = 0
        if IMAGE_WIDTH > 0:
            reach = tl.maximum(reach, tl.load(left_visible_ptr + token))
            after = tl.load(right_visible_ptr + token)
        window_start = tl.maximum(tl.maximum(position - reach, 0), gather_start)
        seen = tl.maximum(position + after - window_start + 1, 0)
        window_slot = first_slot + compressed_slots + window_start - gather_start
        column = tl.arange(0, WINDOW_SIZE)
        stop = tl.minimum(seen, WINDOW_SIZE + IMAGE_WIDTH)
        done = 0
        while done < stop:  # once, unless the token is of an image
            target = done + column
            tl.store(out_row + selected + target, window_slot + target, mask=target < stop)
            done += WINDOW_SIZE
        tl.store(lens_ptr + token, selected + seen)
        token += tl.num_programs(1)


class CombineTopkSwaIndicesKernel(TritonJitKernel["CombineTopkSwaIndicesKernel.CompileKey"]):
    """Combines selected states and the window of each token; see the module's text."""

    kernel = _combine_topk_swa_indices
    kernel_name = "CombineTopkSwaIndices"

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """The constexprs of the kernel and the alignment of four pointers."""

        top_k: int
        compress_ratio: int
        window_size: int
        image_width: int
        padded_top_k: int
        input_variant: TritonPointerInputVariant

    @functools.lru_cache(maxsize=1024, typed=True)  # noqa: B019 - the instance is a singleton
    def dispatch(
        self,
        *,
        top_k: int,
        topk_width: int,
        compress_ratio: int,
        window_size: int,
        image_width: int,
        aligned: Alignment,
    ) -> CompileKey:
        """The key of a launch whose topk_indices have rows of `topk_width`.

        `aligned` says which of `POINTERS` 16 divides. Ratio 0 means 1. Raises `BindingError` (a
        ValueError) for sizes that the kernel does not have.
        """
        if not 0 <= top_k <= topk_width or topk_width < 1 or image_width < 0 or compress_ratio < 0:
            raise BindingError(
                f"{self.kernel_name}: needs a top-k of 0 up to the width of its tensor, an image "
                f"width and a ratio of 0 or more, got top-k {top_k} of {topk_width}, images of "
                f"{image_width} and ratio {compress_ratio}"
            )
        if window_size < 1 or window_size & (window_size - 1):
            raise BindingError(f"{self.kernel_name}: window {window_size} is no power of two")
        return self.CompileKey(
            top_k,
            max(1, compress_ratio),
            window_size,
            image_width,
            1 << (topk_width - 1).bit_length(),
            TritonPointerInputVariant(tuple(zip(POINTERS, aligned, strict=True))),
        )

    def get_warmup_keys(
        self, config: Any, *, ratios: tuple[int, ...] | None = None, as_published: bool = False
    ) -> list[CompileKey] | NoKeys:
        """Every width of every compress ratio, with and without images, in each alignment.

        `ratios` are those of the layers that are there (default: all that the model names).
        `as_published` is the space of the engine that the kernel comes from; see the module's text.
        """
        model, scheduler = config.model_config.hf_config, config.scheduler_config
        if scheduler.max_num_batched_tokens <= 0:
            return NoKeys("a step has no tokens (max_num_batched_tokens)")
        named = getattr(model, "compress_ratios", None) or ()
        distinct = sorted({max(1, one) for one in (named if ratios is None else ratios)})
        index_topk = getattr(model, "index_topk", 0)
        if not distinct or index_topk <= 0:
            return NoKeys("the model does not compress its cache (compress_ratios, index_topk)")
        max_model_len = config.model_config.max_model_len
        has_vision = getattr(model, "vision_n_layers", 0) > 0
        selections = published_selections if as_published else reached_selections
        return self._trace_dispatch(self.dispatch)(
            zip_inputs(
                *(
                    {"compress_ratio": ratio, "top_k": top_k, "topk_width": top_k or index_topk}
                    for ratio in distinct
                    for top_k in selections(ratio, index_topk, max_model_len)
                )
            ),
            window_size=getattr(model, "sliding_window", 0) or DEFAULT_WINDOW,
            image_width=(0, model.vision_max_n_token) if has_vision else (0,),
            aligned=PUBLISHED_ALIGNMENTS if as_published else _alignments(config),
        )

    def warmup_inputs(self, key: CompileKey) -> dict[str, Any]:
        """Arguments of a call that has this key; without images there are no visible counts."""

        def tensor(*shape: int) -> Any:
            return TritonWarmupTensor(torch.int32, shape=shape)

        variant = key.input_variant
        has_image = key.image_width > 0
        return {
            "topk_indices": variant.pointer("topk_indices", torch.int32, (2, key.padded_top_k)),
            "query_start_loc": variant.pointer("query_start_loc", torch.int32, (3,)),
            "seq_lens": variant.pointer("seq_lens", torch.int32, (2,)),
            "gather_lens": variant.pointer("gather_lens", torch.int32, (2,)),
            "top_k": key.top_k,
            "compress_ratio": key.compress_ratio,
            "window_size": key.window_size,
            "slots_per_request": 2,
            "compressed_slots": 2,
            "max_image_tokens": key.image_width,
            "left_visible": tensor(2) if has_image else None,
            "right_visible": tensor(2) if has_image else None,
            "indices": tensor(2, row_width(key.top_k, key.window_size, key.image_width)),
            "lens": tensor(2),
        }

    @kernel_launcher
    def __call__(
        self,
        topk_indices: torch.Tensor,
        query_start_loc: torch.Tensor,
        seq_lens: torch.Tensor,
        gather_lens: torch.Tensor,
        *,
        top_k: int,
        compress_ratio: int,
        window_size: int,
        slots_per_request: int,
        compressed_slots: int,
        max_image_tokens: int = 0,
        left_visible: torch.Tensor | None = None,
        right_visible: torch.Tensor | None = None,
        indices: torch.Tensor | None = None,
        lens: torch.Tensor | None = None,
    ) -> Any:
        """Fill `indices` and `lens` (allocated if absent, indices as -1) and return the two.

        `max_image_tokens` widens the rows of a vision model in each batch; what is visible is given
        only for a batch with images. Raises `BindingError` (a ValueError) for tensors and sizes
        that do not fit.
        """
        num_tokens, topk_width = topk_indices.shape
        num_reqs = seq_lens.shape[0]
        width = top_k + window_size + max_image_tokens
        if indices is None:
            padded = row_width(top_k, window_size, max_image_tokens)
            indices = topk_indices.new_full((num_tokens, padded), -1)
        if lens is None:
            lens = topk_indices.new_empty(num_tokens)
        visible = [tensor for tensor in (left_visible, right_visible) if tensor is not None]
        given = [topk_indices, query_start_loc, seq_lens, gather_lens, *visible, indices, lens]
        if not (
            all(map(_is_plain, given))
            and query_start_loc.shape[0] > num_reqs
            and gather_lens.shape[0] >= num_reqs
            and len(visible) in ({0, 2} if max_image_tokens else {0})
            and all(tensor.shape[0] >= num_tokens for tensor in (*visible, indices, lens))
            and indices.shape[1] >= width
        ):
            raise BindingError(
                f"{self.kernel_name}: needs int32 tensors without gaps, for {num_reqs} requests "
                f"{num_reqs + 1} entries of query_start_loc and {num_reqs} of gather_lens, both "
                "visible counts or neither and none without image tokens, and "
                f"{num_tokens} rows of at least {width} indices, lens and visible counts, got "
                + ", ".join(f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in given)
            )
        key = self.dispatch(
            top_k=top_k,
            topk_width=topk_width,
            compress_ratio=compress_ratio,
            window_size=window_size,
            image_width=max_image_tokens if visible else 0,
            aligned=(
                topk_indices.data_ptr() % 16 == 0,
                query_start_loc.data_ptr() % 16 == 0,
                seq_lens.data_ptr() % 16 == 0,
                gather_lens.data_ptr() % 16 == 0,
            ),
        )
        launch = {
            "left_visible_ptr": left_visible if visible else topk_indices,  # not read without
            "right_visible_ptr": right_visible if visible else topk_indices,
            "indices_ptr": indices,
            "lens_ptr": lens,
            "TOP_K": key.top_k,
            "COMPRESS_RATIO": key.compress_ratio,
            "WINDOW_SIZE": key.window_size,
            "IMAGE_WIDTH": key.image_width,
            "PADDED_TOP_K": key.padded_top_k,
        }
        grid = (num_reqs, min(WORKERS, num_tokens)) if num_reqs and num_tokens else None
        return grid, launch, (indices, lens)


def row_width(top_k: int, window_size: int, max_image_tokens: int) -> int:
    """Columns of a row of indices: everything that it can hold, up to a multiple of 128."""
    return -(-(top_k + window_size + max_image_tokens) // ROW_STEP) * ROW_STEP


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the elements of a row are int32 and lie side by side."""
    return tensor.dtype is torch.int32 and (tensor.stride(-1) == 1 or tensor.numel() == 0)


def published_selections(ratio: int, index_topk: int, max_model_len: int) -> list[int]:
    """The top-k values of a ratio: nothing, what the indexer selects, or widths for all states."""
    if ratio == 1:
        return [0]
    if ratio == INDEXER_RATIO:
        return [index_topk]
    states = -(-max_model_len // ratio)
    widest = -(-states // ROW_STEP) * ROW_STEP
    widths = [ROW_STEP]
    while widths[-1] < widest:
        widths.append(min(2 * widths[-1], widest))
    return widths


def reached_selections(ratio: int, index_topk: int, max_model_len: int) -> list[int]:
    """Of these, the ones that some length needs: only whole states count."""
    widths = published_selections(ratio, index_topk, max_model_len)
    return widths[:1] + [
        wide for narrow, wide in itertools.pairwise(widths) if max_model_len // ratio > narrow
    ]


def _alignments(config: Any) -> tuple[Alignment, ...]:
    """Those of a step: behind decodes, where it has room for a decode and a prefill."""
    scheduler, drafts = config.scheduler_config, getattr(config, "speculative_config", None)
    query_len = 1 + (drafts.num_speculative_tokens if drafts else 0)
    both = scheduler.max_num_seqs > 1 and scheduler.max_num_batched_tokens > query_len
    return (WHOLE, BEHIND_DECODES) if both else (WHOLE,)


combine_topk_swa_indices = CombineTopkSwaIndicesKernel()
