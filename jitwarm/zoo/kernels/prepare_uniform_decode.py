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

All three integers follow from the configuration, so an engine has one key. The engine that the
kernel comes from declares all 27 combinations; `as_published=True` does so too.
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
from jitwarm.zoo.kernels.compute_slot_mapping import block_table_width

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
def PrepareUniformDecode(config: Any, *, as_published: bool = False) -> Iterator[Any]:
    """The one key of an engine: the table of the indexer's group and a buffer of the same width,
    and a decode row's new tokens.

    `as_published` gives every class of the three integers, whatever the configuration.
    """
    width: Any
    tokens: Any
    if as_published:
        width = tokens = WarmupChoices(1, 2, 16)
    else:
        width = block_table_width(
            config.model_config.max_model_len,
            config.cache_config.block_size,
            config.parallel_config.decode_context_parallel_size,
        )
        drafts = getattr(config, "speculative_config", None)
        tokens = 1 + (drafts.num_speculative_tokens if drafts else 0)
    yield launch(
        seq_lens_ptr=TensorSpec("int32"),
        block_table_ptr=TensorSpec("int32"),
        block_table_stride=width,
        decode_seq_lens_ptr=TensorSpec("int32"),
        expanded_block_table_ptr=TensorSpec("int32"),
        expanded_stride=width,
        decode_lens_ptr=TensorSpec("int32"),
        tokens_per_request=tokens,
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
        arguments = _arguments(
            seq_lens,
            block_table,
            decode_seq_lens,
            expanded_block_table,
            decode_lens,
            tokens_per_request,
        )
        _prepare_uniform_decode[(num_tokens,)](*arguments.values(), **_CONSTANTS)
    return num_tokens


def uniform_decode_launch(
    seq_lens: Any,
    block_table: Any,
    decode_seq_lens: Any,
    expanded_block_table: Any,
    decode_lens: Any,
    *,
    tokens_per_request: int,
) -> dict[str, Any] | None:
    """The launch that `prepare_uniform_decode` makes of these arguments, tensors or stand-ins; None
    where it makes none.
    """
    if not seq_lens.shape[0]:
        return None
    arguments = _arguments(
        seq_lens,
        block_table,
        decode_seq_lens,
        expanded_block_table,
        decode_lens,
        tokens_per_request,
    )
    return arguments | _CONSTANTS


def _arguments(
    seq_lens: Any,
    block_table: Any,
    decode_seq_lens: Any,
    expanded_block_table: Any,
    decode_lens: Any,
    tokens_per_request: int,
) -> dict[str, Any]:
    """Everything but the constants, in the order of the kernel."""
    return {
        "seq_lens_ptr": seq_lens,
        "block_table_ptr": block_table,
        "block_table_stride": block_table.stride(0),
        "decode_seq_lens_ptr": decode_seq_lens,
        "expanded_block_table_ptr": expanded_block_table,
        # The row stride, because the table is contiguous.
        "expanded_stride": expanded_block_table.shape[-1],
        "decode_lens_ptr": decode_lens,
        "tokens_per_request": tokens_per_request,
    }
