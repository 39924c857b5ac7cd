"""What the two window kernels share: a row of cache rows, and the checks of their tensors.

ComputeSWAIndicesAndLens and ComputeDSparkNoncausalSWAIndices differ in which places of the sequence
a token sees; both write them as indices int32 [n, 1, width] with lens int32 [n].
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (kernel arguments have no Python types)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.contract import TritonWarmupTensor
from jitwarm.errors import BindingError

TILE = 1024  # columns that a program handles at a time


@triton.jit
def write_window(
    indices_row_ptr,
    len_ptr,
    table_row_ptr,
    start,
    length,
    index_width,
    block_size,
    TILE: tl.constexpr,
):
    """One row: the cache rows of places [start, start + length), -1 behind them; and the length."""
    tl.store(len_ptr, length)
    at = 0
    # A range with a run-time bound fails in Triton 3.6's interpreter with numpy 2.4.
    while at < index_width:
        column = at + tl.arange(0, TILE)
        in_row = column < index_width
        inside = column < length
        place = start + column
        number = tl.load(table_row_ptr + place // block_size, mask=in_row & inside, other=0)
        row = tl.where(inside, number * block_size + place % block_size, -1)
        tl.store(indices_row_ptr + column, row, mask=in_row)
        at += TILE


def window_outputs(
    name: str,
    batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    token_offset: int,
    num_tokens: int,
    width: int,
    indices: torch.Tensor | None,
    lens: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Check the tensors of a launch of kernel `name` and return indices and lens, allocated if
    absent.

    `batch` is (token_to_req, is_valid_token, query_start_loc, seq_lens, block_table).
    Raises `BindingError` (a ValueError) for tensors that do not fit each other.
    """
    token_to_req, is_valid_token, query_start_loc, seq_lens, block_table = batch
    num_reqs, end = seq_lens.shape[0], token_offset + num_tokens
    if num_tokens >= 0:
        if indices is None:
            indices = seq_lens.new_empty((num_tokens, 1, width))
        if lens is None:
            lens = seq_lens.new_empty(num_tokens)
    if (
        indices is None
        or lens is None
        or not (
            token_offset >= 0
            and is_flat(token_to_req, torch.int32, end)
            and is_flat(is_valid_token, torch.bool, end)
            and is_flat(query_start_loc, torch.int32, num_reqs + 1)
            and is_flat(seq_lens, torch.int32, 0)
            and block_table.dtype == torch.int32
            and block_table.ndim == 2
            and block_table.shape[0] >= num_reqs
            and (block_table.stride(1) == 1 or not num_reqs)
            and indices.dtype == torch.int32
            and indices.ndim == 3
            and indices.shape[0] >= num_tokens
            and indices.shape[1:] == (1, width)
            and (indices.stride(2) == 1 or width <= 1)
            and is_flat(lens, torch.int32, num_tokens)
        )
    ):
        raise BindingError(
            f"{name}: {num_tokens} tokens from {token_offset} with rows of {width} need, "
            "contiguous, token_to_req int32 and is_valid_token bool of all tokens, query_start_loc "
            "int32 [Q+1 or more], seq_lens int32 [Q], block_table int32 [Q or more, columns], "
            "indices int32 [tokens or more, 1, width] and lens int32 [tokens or more]; got "
            + described(*batch, indices, lens)
        )
    return indices, lens


def first_rows(
    indices: torch.Tensor, lens: torch.Tensor, num_tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows that a launch writes; a view is made only where there are more."""
    return (
        indices if indices.shape[0] == num_tokens else indices[:num_tokens],
        lens if lens.shape[0] == num_tokens else lens[:num_tokens],
    )


def window_warmup_tensors(width: int) -> dict[str, Any]:
    """The tensors and counts of a warm-up call that both window kernels take."""

    def ints(*shape: int) -> Any:
        return TritonWarmupTensor(torch.int32, shape=shape)

    return {
        "token_to_req": ints(2),
        "is_valid_token": TritonWarmupTensor(torch.bool, shape=(2,)),
        "query_start_loc": ints(3),
        "seq_lens": ints(2),
        "block_table": ints(2, 2),
        "num_tokens": 2,
        "token_offset": 0,
        "indices": ints(2, 1, width),
        "lens": ints(2),
    }


def is_flat(tensor: torch.Tensor, dtype: torch.dtype, entries: int) -> bool:
    """Whether this is a contiguous vector of the dtype with at least that many entries."""
    return (
        tensor.dtype == dtype
        and tensor.ndim == 1
        and tensor.shape[0] >= entries
        and tensor.is_contiguous()
    )


def described(*tensors: torch.Tensor | None) -> str:
    """Dtypes and shapes, for errors."""
    return ", ".join("none" if t is None else f"{t.dtype} {list(t.shape)}" for t in tensors)
