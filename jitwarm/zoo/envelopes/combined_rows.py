"""CombineTopkSwaIndices: the rows of each gathered chunk of the prefills of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from jitwarm.declare import TensorSpec
from jitwarm.proof.envelope import Envelope, Ints
from jitwarm.proof.forms import affine, pointer
from jitwarm.zoo.envelopes.limits import Limits
from jitwarm.zoo.envelopes.stand_ins import from_offset, from_start
from jitwarm.zoo.envelopes.windows import images_fit
from jitwarm.zoo.kernels.combine_topk_swa_indices import (
    INDEXER_RATIO,
    combine_topk_swa_indices,
    reached_selections,
    row_width,
)
from jitwarm.zoo.steps.gather_plan import GROUP
from jitwarm.zoo.steps.image_spans import SHORTEST

INT = torch.int32


def combined_rows(
    limits: Limits,
    *,
    ratio: int,
    index_topk: int,
    window: int,
    max_image_tokens: int = 0,
) -> Iterator[Envelope]:
    """The launches of the layers of one compress ratio: for each top-k, with and without images.

    `groups` are the whole groups of 4 prefills before the chunk, `start` its first new token, both
    behind the decodes.
    """
    length = limits.query_len
    most_groups = (limits.rows - 1) // GROUP
    for top_k in reached_selections(ratio, index_topk, limits.longest):
        for has_image in (False, True) if images_fit(limits, max_image_tokens) else (False,):
            new = SHORTEST if has_image else 1
            yield Envelope(
                combine_topk_swa_indices,
                f"CombineTopkSwaIndices of ratio {ratio}, {top_k} of the states"
                + ", with an image" * has_image,
                {
                    "decodes": Ints(0, limits.decodes),
                    "groups": Ints(0, most_groups),
                    "start": Ints(0, limits.tokens - 1),
                },
                _launch(limits, ratio, top_k, index_topk, window, max_image_tokens, has_image),
                where=lambda decodes, groups, start, new=new: (
                    (decodes + GROUP * groups < limits.rows)
                    & (start >= GROUP * groups)
                    & ((groups > 0) | (start == 0))
                    & (decodes * length + start + 1 <= limits.tokens)
                    & (decodes * length + new <= limits.tokens)
                ),
                forms={
                    name: pointer(offset=affine(decodes=4, groups=4 * GROUP), length=affine(1))
                    for name in ("query_start_loc_ptr", "seq_lens_ptr")
                },
            )


def _launch(
    limits: Limits,
    ratio: int,
    top_k: int,
    index_topk: int,
    window: int,
    max_image_tokens: int,
    has_image: bool,
) -> Callable[..., dict[str, Any]]:
    """A chunk of one request of one new token: how many it has decides nothing."""
    most_states = reached_selections(ratio, index_topk, limits.longest)[-1]
    width = row_width(top_k, window, max_image_tokens)

    def launch(decodes: int, groups: int, start: int) -> dict[str, Any]:
        row, token = decodes + GROUP * groups, decodes * limits.query_len + start
        selection = from_offset(INT, token * index_topk, 1, index_topk)
        if ratio > 1 and ratio != INDEXER_RATIO:
            # The first columns of a wider buffer, which has a row a new token of the prefills.
            aligned = start * most_states * INT.itemsize % 16 == 0
            selection = TensorSpec(INT, aligned, (1, top_k), (most_states, 1))
        visible = from_offset(INT, token, 1) if has_image else None
        return {
            "topk_indices": selection,
            "query_start_loc": from_offset(INT, row, 2),
            "seq_lens": from_offset(INT, row, 1),
            "gather_lens": from_offset(INT, GROUP * groups, 1),
            "top_k": top_k,
            "compress_ratio": ratio,
            "window_size": window,
            "slots_per_request": window,
            "compressed_slots": 0,
            "max_image_tokens": max_image_tokens,
            "left_visible": visible,
            "right_visible": visible,
            "indices": from_start(INT, 1, width),
            "lens": from_start(INT, 1),
        }

    return launch
