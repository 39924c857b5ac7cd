"""ComputeDSparkNoncausalSWAIndices: the cache rows that each token of a draft block attends to.

A draft block is not causal: all tokens of a request see the same rows, the last w of the context
and every new token. Row i describes token t = token_offset + i of request q = token_to_req[t],
which has n new tokens. With cache blocks of bs tokens:

    start  = max(seq_lens[q] - n - w, 0)
    length = seq_lens[q] - start
    indices[i, 0, c] = block_table[q, x // bs] * bs + x % bs,  x = start + c,   for c < length
    indices[i, 0, c] = -1                                                       for other c < width
    lens[i] = length,   width = cdiv(max(w, 0) + max(speculative tokens, 0), 64) * 64

A token that is not valid (no slot: padding) has length 0 and a row of -1; its token_to_req is not
read. There are no images and no replay bound here.

Shapes: token_to_req and is_valid_token [offset + n or more], seq_lens [Q], query_start_loc [Q+1 or
more], block_table [Q or more, columns], indices [n or more, 1, width], lens [n or more];
is_valid_token is bool, all else int32. n = 0 and Q = 0 are legal. Rows past n are not written.
Limits: w plus the new tokens of a request fit into the width; lens is not clipped and exceeds the
width where they do not. Cache rows are below 2**31; table and output offsets are 64-bit.

Callers and reachable classes
-----------------------------
The sliding-window metadata builder, once a step for its decode rows (offset 0) if the batch is not
causal, which is when DSpark drafts. It takes the place of ComputeSWAIndicesAndLens there.

* token_to_req_ptr, is_valid_token_ptr, query_start_loc_ptr, seq_lens_ptr: the step's own, from
  their start. Classes: aligned.
* block_table_ptr: the group's table, `[:num_reqs]`. Classes: aligned.
* indices_ptr, lens_ptr: the builder's own buffers, from their start, or fresh. Classes: aligned.
* indices_stride, block_table_stride, token_offset: any. Classes: i32, unspecialised.
* window_size, block_size: fixed by the model and its cache. Classes: one set.
* index_width: a multiple of 64, fixed by window and speculative tokens. Classes: 16.

The declared key holds window, width and block size by value, the binary only their classes: drafts
of 1 to 64 tokens behind a window of 128 share a width of 192, and all widths share a binary.

Not declared, and compiled on first use: lens that are a slice at an offset that is no multiple of
4.
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

from jitwarm.contract import TritonJitKernel, kernel_launcher
from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.window_rows import (
    TILE,
    first_rows,
    window_outputs,
    window_warmup_tensors,
    write_window,
)

WIDTH_STEP = 64  # rows are padded to whole tiles of the attention kernel


@triton.jit(do_not_specialize=["indices_stride", "block_table_stride", "token_offset"])
def _compute_dspark_noncausal_swa_indices(
    indices_ptr,
    indices_stride,
    lens_ptr,
    token_to_req_ptr,
    is_valid_token_ptr,
    query_start_loc_ptr,
    seq_lens_ptr,
    block_table_ptr,
    block_table_stride,
    token_offset,
    window_size,
    index_width,
    block_size,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    token = row + token_offset
    valid = tl.load(is_valid_token_ptr + token)
    request = tl.load(token_to_req_ptr + token, mask=valid, other=0)
    start = 0
    length = 0
    if valid:
        query_len = tl.load(query_start_loc_ptr + request + 1)
        query_len -= tl.load(query_start_loc_ptr + request)
        seq_len = tl.load(seq_lens_ptr + request)
        start = tl.maximum(seq_len - query_len - window_size, 0)
        length = seq_len - start
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


class ComputeDSparkNoncausalSWAIndicesKernel(
    TritonJitKernel["ComputeDSparkNoncausalSWAIndicesKernel.CompileKey"]
):
    """Finds the rows that a draft block sees; see the module's text."""

    kernel = _compute_dspark_noncausal_swa_indices
    kernel_name = "ComputeDSparkNoncausalSWAIndices"

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """Sizes by value, though Triton tells only their classes apart; the last is a constexpr."""

        window_size: int
        index_width: int
        block_size: int
        tile: int

    @functools.lru_cache(maxsize=64, typed=True)  # noqa: B019 - the instance is a singleton
    def dispatch(
        self, *, window_size: int, num_speculative_tokens: int, block_size: int
    ) -> CompileKey:
        """The key of a launch, with the width of its rows.

        Raises `BindingError` (a ValueError) where no row has an entry or a block no token.
        """
        entries = max(window_size, 0) + max(num_speculative_tokens, 0)
        if min(entries, block_size) < 1:
            raise BindingError(
                f"{self.kernel_name}: window plus speculative tokens, and the block size, must be "
                f"1 or more, not {window_size} plus {num_speculative_tokens}, and {block_size}"
            )
        width = -(-entries // WIDTH_STEP) * WIDTH_STEP
        return self.CompileKey(window_size, width, block_size, TILE)

    def get_warmup_keys(
        self, *, window_size: int, num_speculative_tokens: int, block_size: int
    ) -> list[CompileKey]:
        """The one key of a model that drafts with DSpark."""
        return self._trace_dispatch(self.dispatch)(
            window_size=window_size,
            num_speculative_tokens=num_speculative_tokens,
            block_size=block_size,
        )

    def warmup_inputs(self, key: CompileKey) -> dict[str, Any]:
        """Arguments of a call that has this key; the most tokens that its width admits."""
        return {
            **window_warmup_tensors(key.index_width),
            "window_size": key.window_size,
            "num_speculative_tokens": key.index_width - max(key.window_size, 0),
            "block_size": key.block_size,
        }

    @kernel_launcher
    def __call__(
        self,
        token_to_req: torch.Tensor,
        is_valid_token: torch.Tensor,
        query_start_loc: torch.Tensor,
        seq_lens: torch.Tensor,
        block_table: torch.Tensor,
        *,
        num_tokens: int,
        token_offset: int,
        window_size: int,
        num_speculative_tokens: int,
        block_size: int,
        indices: torch.Tensor | None = None,
        lens: torch.Tensor | None = None,
    ) -> Any:
        """Fill rows of `num_tokens` tokens and return (indices [n, 1, width], lens [n]).

        `indices` and `lens` are allocated if absent, and may have more rows. Never waits for the
        device, so values are not checked.
        Raises `BindingError` (a ValueError) for tensors that do not fit each other.
        """
        key = self.dispatch(
            window_size=window_size,
            num_speculative_tokens=num_speculative_tokens,
            block_size=block_size,
        )
        indices, lens = window_outputs(
            self.kernel_name,
            (token_to_req, is_valid_token, query_start_loc, seq_lens, block_table),
            token_offset,
            num_tokens,
            key.index_width,
            indices,
            lens,
        )
        launch = {
            "indices_ptr": indices,
            "lens_ptr": lens,
            "index_width": key.index_width,
            "TILE": key.tile,
        }
        return (num_tokens,) if num_tokens else None, launch, first_rows(indices, lens, num_tokens)


compute_dspark_noncausal_swa_indices = ComputeDSparkNoncausalSWAIndicesKernel()
