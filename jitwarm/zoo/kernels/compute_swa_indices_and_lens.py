"""ComputeSWAIndicesAndLens: the cache rows of the sliding window that each token attends to.

Row i describes token t = token_offset + i. With request q = token_to_req[t], which has n new tokens
starting at query_start_loc[q], position p = seq_lens[q] - n + t - query_start_loc[q], window w and
cache blocks of bs tokens:

    start  = max(p - max(w - 1, left[t]), 0, replay_start[q])
    length = p + right[t] + 1 - start
    indices[i, 0, c] = block_table[q, x // bs] * bs + x % bs,  x = start + c,   for c < length
    indices[i, 0, c] = -1                                                       for other c < width
    lens[i] = length

left and right are the counts of tokens of the same image before and after t, 0 for a text token:
an image sees all of itself, whatever the window. Nothing below replay_start has window entries. A
token that is not valid (no slot: padding) has length 0 and a row of -1; its token_to_req is not
read.

Shapes: token_to_req and is_valid_token [offset + n or more], seq_lens [Q], query_start_loc [Q+1 or
more], replay_start [Q or more], block_table [Q or more, columns], left_visible and right_visible
[offset + n or more] or both absent, indices [n or more, 1, width], lens [n or more]; is_valid_token
is bool, all else int32. n = 0 and Q = 0 are legal. Rows past n are not written.
Limits: width >= w + the tokens of the largest image. lens is not clipped: it exceeds the width
where that is broken, and is 0 or less for a position below zero or a replay start above the token.
Cache rows are below 2**31; table and output offsets are 64-bit.

Callers and reachable classes
-----------------------------
The sliding-window metadata builder, twice a step: decode rows (offset 0, never images), then
prefill rows (offset = decode tokens). The kernel adds the offset itself, so no input is sliced.

* token_to_req_ptr, is_valid_token_ptr, query_start_loc_ptr, seq_lens_ptr, replay_start_ptr: the
  step's own, from their start. Classes: aligned.
* block_table_ptr: the group's table, `[:num_reqs]`. Classes: aligned.
* indices_ptr, lens_ptr: a buffer for decode, another or a fresh one for prefill. Classes: aligned.
* left_visible_ptr, right_visible_ptr: text: the lens stand in; images: the step's own, from their
  start. Classes: aligned.
* indices_stride, block_table_stride, token_offset: any. Classes: i32, unspecialised.
* window_size, index_width, block_size: fixed by the model and its cache; the width of prefill rows
  grows by the largest image. Classes: one set; two widths of the same class with images.
* HAS_IMAGE: text model: False; vision model: True for prefill rows of a batch with images. Classes:
  both.

A declared key holds window, width and block size by value, the binary only their classes: 128, 1152
and 64 are all divisible by 16, so the three keys of a vision model are two binaries. Keys stay
apart by value because a reader asks for widths, not for classes.

Not declared, and compiled on first use: prefill lens that are a slice of the decode buffer at an
offset that is no multiple of 4 (rows of indices are aligned at every offset if 4 divides the
width).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (kernel arguments have no Python types)

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.contract import TritonJitKernel, TritonWarmupTensor, kernel_launcher, zip_inputs
from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.window_rows import (
    TILE,
    described,
    first_rows,
    is_flat,
    window_outputs,
    window_warmup_tensors,
    write_window,
)


@triton.jit(do_not_specialize=["indices_stride", "block_table_stride", "token_offset"])
def _compute_swa_indices_and_lens(
    indices_ptr,
    indices_stride,
    lens_ptr,
    token_to_req_ptr,
    is_valid_token_ptr,
    query_start_loc_ptr,
    seq_lens_ptr,
    block_table_ptr,
    block_table_stride,
    replay_start_ptr,
    left_visible_ptr,
    right_visible_ptr,
    token_offset,
    window_size,
    index_width,
    block_size,
    HAS_IMAGE: tl.constexpr,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    token = row + token_offset
    valid = tl.load(is_valid_token_ptr + token)
    request = tl.load(token_to_req_ptr + token, mask=valid, other=0)
    start = 0
    length = 0
    if valid:
        end = tl.load(query_start_loc_ptr + request + 1)
        position = tl.load(seq_lens_ptr + request) - end + token.to(tl.int32)
        before = window_size - 1
        after = 0
        if HAS_IMAGE:
            before = tl.maximum(tl.load(left_visible_ptr + token), before)
            after = tl.load(right_visible_ptr + token)
        start = tl.maximum(position - before, tl.load(replay_start_ptr + request))
        start = tl.maximum(start, 0)
        length = position + after + 1 - start
    write_window(
        indices_ptr + row * indices_stride,
        lens_ptr + row,
        block_table_ptr + request.to(tl.int64) * block_table_stride,
        start,
        length,
        index_width,
        block_size,
        TILE,
    )


class ComputeSWAIndicesAndLensKernel(TritonJitKernel["ComputeSWAIndicesAndLensKernel.CompileKey"]):
    """Finds the window of each token; see the module's text."""

    kernel = _compute_swa_indices_and_lens
    kernel_name = "ComputeSWAIndicesAndLens"

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """Sizes by value, though Triton tells only their classes apart; the last is a constexpr."""

        window_size: int
        index_width: int
        has_image: bool
        block_size: int
        tile: int

    @functools.lru_cache(maxsize=64, typed=True)  # noqa: B019 - the instance is a singleton
    def dispatch(
        self, *, window_size: int, index_width: int, has_image: bool, block_size: int
    ) -> CompileKey:
        """The key of a launch; window and block in tokens, width in entries of a row.

        Raises `BindingError` (a ValueError) for sizes below 1.
        """
        if min(window_size, index_width, block_size) < 1:
            raise BindingError(
                f"{self.kernel_name}: window, width and block size must be 1 or more, not "
                f"{window_size}, {index_width} and {block_size}"
            )
        return self.CompileKey(window_size, index_width, has_image, block_size, TILE)

    def get_warmup_keys(
        self, *, window_size: int, block_size: int, max_image_tokens: int = 0
    ) -> list[CompileKey]:
        """One key of a text model: rows as wide as the window.

        Where an image has up to `max_image_tokens` tokens there are two more: prefill rows are
        wider by that, in batches with images and in those without.
        """
        rows = [{"index_width": window_size, "has_image": False}]
        if max_image_tokens > 0:
            wide = window_size + max_image_tokens
            rows += [{"index_width": wide, "has_image": image} for image in (False, True)]
        return self._trace_dispatch(self.dispatch)(
            zip_inputs(*rows), window_size=window_size, block_size=block_size
        )

    def warmup_inputs(self, key: CompileKey) -> dict[str, Any]:
        """Arguments of a call that has this key."""
        visible = TritonWarmupTensor(torch.int32, shape=(2,)) if key.has_image else None
        return {
            **window_warmup_tensors(key.index_width),
            "replay_start": TritonWarmupTensor(torch.int32, shape=(2,)),
            "window_size": key.window_size,
            "block_size": key.block_size,
            "index_width": key.index_width,
            "left_visible": visible,
            "right_visible": visible,
        }

    @kernel_launcher
    def __call__(
        self,
        token_to_req: torch.Tensor,
        is_valid_token: torch.Tensor,
        query_start_loc: torch.Tensor,
        seq_lens: torch.Tensor,
        block_table: torch.Tensor,
        replay_start: torch.Tensor,
        *,
        num_tokens: int,
        token_offset: int,
        window_size: int,
        block_size: int,
        index_width: int | None = None,
        left_visible: torch.Tensor | None = None,
        right_visible: torch.Tensor | None = None,
        indices: torch.Tensor | None = None,
        lens: torch.Tensor | None = None,
    ) -> Any:
        """Fill rows of `num_tokens` tokens and return (indices [n, 1, width], lens [n]).

        `index_width` is by default the window; `indices` and `lens` are allocated if absent, and
        may have more rows. Never waits for the device, so values are not checked.
        Raises `BindingError` (a ValueError) for tensors that do not fit each other.
        """
        width = window_size if index_width is None else index_width
        has_image = left_visible is not None
        key = self.dispatch(
            window_size=window_size, index_width=width, has_image=has_image, block_size=block_size
        )
        if not (
            has_image == (right_visible is not None)
            and is_flat(replay_start, torch.int32, seq_lens.shape[0])
            and (
                left_visible is None
                or is_flat(left_visible, torch.int32, token_offset + num_tokens)
            )
            and (
                right_visible is None
                or is_flat(right_visible, torch.int32, token_offset + num_tokens)
            )
        ):
            raise BindingError(
                f"{self.kernel_name}: needs replay_start int32 [Q or more], and left_visible and "
                "right_visible int32 [offset + n or more] or neither of them, contiguous; got "
                + described(replay_start, left_visible, right_visible)
                + f" for {seq_lens.shape[0]} requests and {num_tokens} tokens from {token_offset}"
            )
        indices, lens = window_outputs(
            self.kernel_name,
            (token_to_req, is_valid_token, query_start_loc, seq_lens, block_table),
            token_offset,
            num_tokens,
            width,
            indices,
            lens,
        )
        launch = {
            "indices_ptr": indices,
            "lens_ptr": lens,
            "left_visible_ptr": left_visible if has_image else lens,  # never read
            "right_visible_ptr": right_visible if has_image else lens,
            "index_width": width,
            "HAS_IMAGE": has_image,
            "TILE": key.tile,
        }
        return (num_tokens,) if num_tokens else None, launch, first_rows(indices, lens, num_tokens)


compute_swa_indices_and_lens = ComputeSWAIndicesAndLensKernel()
