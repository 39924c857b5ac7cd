"""The sliding windows of a DeepSeek-V4 step: of its decode rows, its prefill rows and its drafts.

The kernels add the offset of the rows themselves and are not specialised on counts, so nothing that
decides a key changes within a site; a batch with an image is a site of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from jitwarm.proof.envelope import Envelope, Ints
from jitwarm.zoo.envelopes.limits import Limits
from jitwarm.zoo.envelopes.stand_ins import from_start
from jitwarm.zoo.kernels.compute_dspark_noncausal_swa_indices import (
    WIDTH_STEP,
    compute_dspark_noncausal_swa_indices,
)
from jitwarm.zoo.kernels.compute_swa_indices_and_lens import compute_swa_indices_and_lens
from jitwarm.zoo.steps.image_spans import SHORTEST

INT = torch.int32


def windows(
    limits: Limits, *, window: int, block_size: int, table_width: int, max_image_tokens: int = 0
) -> Iterator[Envelope]:
    """ComputeSWAIndicesAndLens: decode rows never see an image; prefill rows have room for one."""
    length = limits.query_len

    def arguments(rows: int, offset: int, tokens: int, width: int) -> dict[str, Any]:
        return {
            **_batch(limits, rows, block_size, table_width),
            "replay_start": from_start(INT, rows),
            "num_tokens": tokens,
            "token_offset": offset,
            "window_size": window,
            "index_width": width,
            **_rows(tokens, width),
        }

    yield Envelope(
        compute_swa_indices_and_lens,
        "ComputeSWAIndicesAndLens of decode rows",
        {"decodes": Ints(1, limits.decodes)},
        lambda decodes: arguments(decodes, 0, decodes * length, window),
        forms={},
    )
    for has_image in (False, True) if images_fit(limits, max_image_tokens) else (False,):
        visible = from_start(INT, limits.tokens) if has_image else None
        yield Envelope(
            compute_swa_indices_and_lens,
            "ComputeSWAIndicesAndLens of prefill rows" + " with an image" * has_image,
            {
                "decodes": Ints(0, limits.decodes),
                "tokens": Ints(SHORTEST if has_image else 1, limits.tokens),
            },
            lambda decodes, tokens, visible=visible: (
                arguments(decodes + 1, decodes * length, tokens, window + max_image_tokens)
                | {"left_visible": visible, "right_visible": visible}
            ),
            where=lambda decodes, tokens: (
                (decodes < limits.rows) & (decodes * length + tokens <= limits.tokens)
            ),
            forms={},
        )


def draft_windows(limits: Limits, *, window: int, block_size: int, table_width: int) -> Envelope:
    """ComputeDSparkNoncausalSWAIndices: the draft batch behind a step with decodes."""
    drafts = limits.query_len - 1
    width = -(-(window + drafts) // WIDTH_STEP) * WIDTH_STEP
    return Envelope(
        compute_dspark_noncausal_swa_indices,
        "ComputeDSparkNoncausalSWAIndices of the draft batch",
        {"decodes": Ints(1, limits.decodes)},
        lambda decodes: {
            **_batch(limits, decodes, block_size, table_width),
            "num_tokens": decodes * limits.query_len,
            "token_offset": 0,
            "window_size": window,
            "num_speculative_tokens": drafts,
            **_rows(decodes * limits.query_len, width),
        },
        forms={},
    )


def _rows(tokens: int, width: int) -> dict[str, Any]:
    """The rows of a buffer that a launch fills, all behind its start."""
    return {"indices": from_start(INT, tokens, 1, width), "lens": from_start(INT, tokens)}


def images_fit(limits: Limits, max_image_tokens: int) -> bool:
    """Whether a step has room for a prefill with an image."""
    return max_image_tokens > 0 and min(limits.tokens, limits.longest) >= SHORTEST


def _batch(limits: Limits, rows: int, block_size: int, table_width: int) -> dict[str, Any]:
    return {
        "token_to_req": from_start(INT, limits.tokens),
        "is_valid_token": from_start(torch.bool, limits.tokens),
        "query_start_loc": from_start(INT, rows + 1),
        "seq_lens": from_start(INT, rows),
        "block_table": from_start(INT, rows, table_width),
        "block_size": block_size,
    }
