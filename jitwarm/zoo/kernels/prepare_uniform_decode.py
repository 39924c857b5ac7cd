"""PrepareUniformDecode: turn a decode batch of L tokens a request into single-token rows.

For token i, of request q = i // L, and its place j = i % L:

    decode_seq_lens[i] = max(seq_lens[q] - L + j + 1, 0)     tokens that i attends to
    expanded_block_table[i, :] = block_table[q, :width]
    decode_lens[i] = 1

Shapes, all int32: seq_lens [Q], block_table [Q or more, width or more], decode_seq_lens and
decode_lens [Q*L or more], expanded_block_table [Q*L or more, width], contiguous. Entries beyond
Q*L are not written: the caller zeroes those of decode_seq_lens. Q = 0 is legal; a padded request
has sequence length 0.
Limit: Q*L below 2**31. Table offsets are 64-bit.

Callers and reachable classes
-----------------------------
The indexer's metadata builder, if the decode kernel takes one token a row and all decode lengths
are equal. Decodes come first in the batch, so each slice is the start of its buffer.

    seq_lens_ptr        seq_lens[:num_decodes] (this rank's lengths under DCP): aligned
    block_table_ptr     block_table[:num_decodes]: aligned
    decode_seq_lens_ptr, expanded_block_table_ptr, decode_lens_ptr
                        the builder's own buffers, whole: aligned
    block_table_stride  width of the group's table, fixed: one of 1, 2, 16
    expanded_stride     width of the builder's buffer, fixed: one of 1, 2, 16
    tokens_per_request  1 to 1 + speculative tokens: 1, 2, and 16 where it is a multiple of 16

The declaration has all 27 combinations for any configuration; one engine reaches 1 to 3 of them.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (Triton reads the annotations of a kernel's arguments: only constexprs may have one.)

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.contract import WarmupChoices
from jitwarm.declare import TensorSpec, declare, launch
from jitwarm.errors import BindingError

_CONSTANTS: dict[str, Any] = {"BLOCK_SIZE": 1024}


@triton.jit
def _prepare_uniform_decode(
    seq_lens_ptr,
    block_table_ptr,
    block_table_stride,
    decode_seq_lens_ptr,
    expanded_block_table_ptr,
    expanded_stride,
    decode_lens_ptr,
    tokens_per_request,
    BLOCK_SIZE: tl.constexpr,
):
    token = tl.program_id(0)
    req = token // tokens_per_request
    behind = (req + 1) * tokens_per_request - 1 - token  # tokens of the request after this one
    seq_len = tl.load(seq_lens_ptr + req)
    tl.store(decode_seq_lens_ptr + token, tl.maximum(seq_len - behind, 0))
    tl.store(decode_lens_ptr + token, 1)

    source_ptr = block_table_ptr + req.to(tl.int64) * block_table_stride
    target_ptr = expanded_block_table_ptr + token.to(tl.int64) * expanded_stride
    first = 0
    # A range with a run-time bound fails in Triton 3.6's interpreter with numpy 2.4.
    while first < expanded_stride:
        columns = first + tl.arange(0, BLOCK_SIZE)
        in_row = columns < expanded_stride
        tl.store(target_ptr + columns, tl.load(source_ptr + columns, mask=in_row), mask=in_row)
        first += BLOCK_SIZE


@declare(_prepare_uniform_decode)
def PrepareUniformDecode() -> Iterator[Any]:
    """Every class of the three integers; nothing depends on the configuration."""
    yield launch(
        seq_lens_ptr=TensorSpec("int32"),
        block_table_ptr=TensorSpec("int32"),
        block_table_stride=WarmupChoices(1, 2, 16),
        decode_seq_lens_ptr=TensorSpec("int32"),
        expanded_block_table_ptr=TensorSpec("int32"),
        expanded_stride=WarmupChoices(1, 2, 16),
        decode_lens_ptr=TensorSpec("int32"),
        tokens_per_request=WarmupChoices(1, 2, 16),
        **_CONSTANTS,
    )


def prepare_uniform_decode(
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    decode_seq_lens: torch.Tensor,
    expanded_block_table: torch.Tensor,
    decode_lens: torch.Tensor,
    *,
    tokens_per_request: int,
) -> int:
    """Fill the first Q*L entries of the three outputs and return that number.

    Never waits for the device.
    Raises `BindingError` (a ValueError) for tensors that do not fit each other.
    """
    num_reqs = seq_lens.shape[0]
    num_tokens, width = num_reqs * tokens_per_request, expanded_block_table.shape[-1]
    if not (
        tokens_per_request > 0
        and block_table.dim() == expanded_block_table.dim() == 2
        and num_reqs <= block_table.shape[0]
        and width <= block_table.shape[1]
        and num_tokens <= expanded_block_table.shape[0]
        and num_tokens <= decode_seq_lens.shape[0]
        and num_tokens <= decode_lens.shape[0]
        and seq_lens.dtype == block_table.dtype == decode_seq_lens.dtype == torch.int32
        and expanded_block_table.dtype == decode_lens.dtype == torch.int32
        and (block_table.stride(1) == 1 or not num_reqs)
        and seq_lens.is_contiguous()
        and decode_seq_lens.is_contiguous()
        and expanded_block_table.is_contiguous()
        and decode_lens.is_contiguous()
    ):
        tensors = (seq_lens, block_table, decode_seq_lens, expanded_block_table, decode_lens)
        raise BindingError(
            "PrepareUniformDecode: needs int32 seq_lens [Q], block_table [Q or more, width or "
            "more] with columns side by side, and for Q*L tokens (L > 0) contiguous "
            "decode_seq_lens [tokens], expanded_block_table [tokens, width] and decode_lens "
            f"[tokens]; got L = {tokens_per_request} and "
            + ", ".join(f"{t.dtype} {list(t.shape)}" for t in tensors)
        )
    if num_tokens:
        _prepare_uniform_decode[(num_tokens,)](
            seq_lens,
            block_table,
            block_table.stride(0),
            decode_seq_lens,
            expanded_block_table,
            width,  # the row stride, because the table is contiguous
            decode_lens,
            tokens_per_request,
            **_CONSTANTS,
        )
    return num_tokens
