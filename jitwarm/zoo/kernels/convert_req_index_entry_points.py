"""The two entry points of ConvertReqIndexToGlobalIndex: checks, buffers, then the launch.

`convert` gives the rows of all tokens, `filter_dcp` those that this rank of a decode context
parallel group holds. Both check what the kernel cannot (dtypes, shapes, whole tiles) and set the
outputs to what programs that share a row build upon.
"""

from __future__ import annotations

from typing import Any

import torch

from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.convert_req_index_to_global_index import (
    TILE,
    tiling,
)
from jitwarm.zoo.kernels.convert_req_index_to_global_index import (
    convert_req_index_to_global_index as kernel,
)

NAME = kernel.kernel_name


def convert(
    req_id: torch.Tensor,
    block_table: torch.Tensor,
    token_indices: torch.Tensor,
    *,
    block_size: int,
    num_topk_tokens: int,
    block_stride_rows: int | None = None,
    dcp_size: int = 1,
    dcp_rank: int = 0,
    dcp_interleave: int = 1,
    idx_mapping: torch.Tensor | None = None,
    prefill_request_id: torch.Tensor | None = None,
    workspace_start: torch.Tensor | None = None,
    workspace_rank_stride: int = 0,
    out: torch.Tensor | None = None,
    valid_counts: torch.Tensor | None = None,
    return_valid_counts: bool = False,
) -> Any:
    """Rows of the tokens, [T, K]; with `return_valid_counts` (rows, valid counts [T]).

    Asking for counts, or giving a buffer for them, also compacts. `out` and `valid_counts` are
    allocated if absent. Raises `BindingError` (a ValueError) for tensors that do not fit.
    """
    _check(req_id, block_table, token_indices, num_topk_tokens)
    if (prefill_request_id is None) != (workspace_start is None):
        raise BindingError(f"{NAME}: give prefill_request_id and workspace_start together, or none")
    for name, tensor in (
        ("idx_mapping", idx_mapping),
        ("prefill_request_id", prefill_request_id),
        ("workspace_start", workspace_start),
    ):
        if tensor is not None:
            _check_buffer(name, tensor, None, block_table)
    if prefill_request_id is not None and prefill_request_id.shape[0] < req_id.shape[0]:
        raise BindingError(
            f"{NAME}: prefill_request_id has {prefill_request_id.shape[0]} entries "
            f"for {req_id.shape[0]} rows"
        )
    counting = return_valid_counts or valid_counts is not None
    out, valid_counts = _buffers(token_indices, out, valid_counts, counting, counting)
    kernel(
        req_id,
        block_table,
        token_indices,
        out,
        valid_counts,
        idx_mapping,
        prefill_request_id,
        workspace_start,
        workspace_rank_stride,
        block_size=block_size,
        block_stride_rows=block_size if block_stride_rows is None else block_stride_rows,
        compact_to_front=counting,
        dcp_size=dcp_size,
        dcp_rank=dcp_rank,
        dcp_interleave=dcp_interleave,
    )
    return (out, valid_counts) if return_valid_counts else out


def filter_dcp(
    req_id: torch.Tensor,
    block_table: torch.Tensor,
    token_indices: torch.Tensor,
    *,
    dcp_size: int,
    dcp_rank: int,
    dcp_interleave: int,
    block_size: int,
    num_topk_tokens: int,
    block_stride_rows: int | None = None,
    compact: bool = True,
    out: torch.Tensor | None = None,
    valid_counts: torch.Tensor | None = None,
    return_valid_counts: bool = False,
) -> Any:
    """Rows of the tokens that this rank holds, [T, K]; with `return_valid_counts` also counts.

    Compacts by default, which counts whether the counts are returned or not; `valid_counts` is
    a buffer for them. With one rank this is `convert`, which compacts only what is counted:
    without `return_valid_counts` the columns then stay in place whatever `compact` says.
    Raises `BindingError` (a ValueError) for tensors, a rank or an interleave that do not fit.
    """
    if block_size % dcp_interleave or not 0 <= dcp_rank < dcp_size:
        raise BindingError(
            f"{NAME}: needs an interleave that divides the block size and a rank "
            f"of the group, got {dcp_interleave}, {block_size}, rank {dcp_rank} of {dcp_size}"
        )
    if dcp_size == 1:
        return convert(
            req_id,
            block_table,
            token_indices,
            block_size=block_size,
            num_topk_tokens=num_topk_tokens,
            block_stride_rows=block_stride_rows,
            out=out,
            valid_counts=valid_counts if return_valid_counts else None,
            return_valid_counts=return_valid_counts,
        )
    _check(req_id, block_table, token_indices, num_topk_tokens)
    counting = compact or return_valid_counts
    out, valid_counts = _buffers(token_indices, out, valid_counts, counting, compact)
    kernel(
        req_id,
        block_table,
        token_indices,
        out,
        valid_counts,
        block_size=block_size,
        block_stride_rows=block_size if block_stride_rows is None else block_stride_rows,
        compact_to_front=compact,
        dcp_size=dcp_size,
        dcp_rank=dcp_rank,
        dcp_interleave=dcp_interleave,
    )
    return (out, valid_counts) if return_valid_counts else out


def _check(
    req_id: torch.Tensor,
    block_table: torch.Tensor,
    token_indices: torch.Tensor,
    num_topk_tokens: int,
) -> None:
    if not (
        req_id.dtype is torch.int32
        and block_table.dtype is torch.int32
        and token_indices.dtype is torch.int32
        and token_indices.shape == (req_id.shape[0], num_topk_tokens)
        and num_topk_tokens % TILE == 0
    ):
        raise BindingError(
            f"{NAME}: needs req_id int32 [T], block_table int32 [Q, M] and "
            f"token_indices int32 [T, {num_topk_tokens}] with whole tiles of {TILE} columns, got "
            + ", ".join(f"{t.dtype} {tuple(t.shape)}" for t in (req_id, block_table, token_indices))
        )


def _buffers(
    token_indices: torch.Tensor,
    out: torch.Tensor | None,
    valid_counts: torch.Tensor | None,
    counting: bool,
    compact: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The outputs of a launch, set to what programs that share a row build upon."""
    num_queries, num_topk_tokens = token_indices.shape
    if out is None:
        out = torch.empty_like(token_indices, memory_format=torch.contiguous_format)
    else:
        _check_buffer("out", out, token_indices.shape, token_indices)
    if not counting:
        return out, None
    if valid_counts is None:
        valid_counts = token_indices.new_empty(num_queries)
    else:
        _check_buffer("valid_counts", valid_counts, (num_queries,), token_indices)
    if not tiling(num_topk_tokens, counting)[2]:
        valid_counts.zero_()
        if compact:
            out.fill_(-1)
    return out, valid_counts


def _check_buffer(
    name: str, buffer: torch.Tensor, shape: tuple[int, ...] | None, like: torch.Tensor
) -> None:
    if not (
        buffer.dtype is torch.int32
        and buffer.device == like.device
        and buffer.is_contiguous()
        and (shape is None or buffer.shape == shape)
    ):
        raise BindingError(
            f"{NAME}: {name} must be a contiguous int32 tensor on "
            f"{like.device}{'' if shape is None else f' of shape {tuple(shape)}'}, got "
            f"{buffer.dtype} {tuple(buffer.shape)} on {buffer.device}"
        )
