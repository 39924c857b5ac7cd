"""CombineTopkSwaIndices for the prefill of DeepSeek-V4: one launch for each chunk of a layer.

All layers of a compress ratio launch the same, so their slices are taken once. Sequence lengths and
query starts are sliced behind the decodes, at any offset; gather lengths count prefills only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from jitwarm.config import EngineConfig
from jitwarm.traffic import Batch
from jitwarm.zoo.kernels.combine_topk_swa_indices import (
    INDEXER_RATIO,
    combine_topk_swa_indices,
    row_width,
)
from jitwarm.zoo.steps.deepseek_v4_buffers import V4Buffers
from jitwarm.zoo.steps.gather_plan import GatherChunk, gather_plan, workspace_rows

Launch = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class CombineLaunch:
    """The launch of one chunk, and where its rows go: `indices` int32 [new tokens, width]."""

    chunk: GatherChunk
    indices: torch.Tensor
    launch: Launch

    def __call__(self) -> Any:
        """Launch."""
        return self.launch()


class GatheredPrefill:
    """Builds the launches of a step from its buffers."""

    def __init__(self, config: EngineConfig, buffers: V4Buffers) -> None:
        """`buffers` are filled with the batch before `launches` is called."""
        self.config, self.buffers = config, buffers

    def launches(self, batch: Batch, ratio: int) -> list[CombineLaunch]:
        """Those of one layer with this ratio; none without a prefill."""
        decodes, window = batch.num_decodes, self.buffers.window
        longest = self.config.model_config.max_model_len
        most = self.config.scheduler_config.max_num_batched_tokens
        plan = gather_plan(
            batch.query_lens[decodes:],
            batch.seq_lens[decodes:],
            ratio=ratio,
            window=window,
            rows=workspace_rows(ratio, window, longest, most),
        )
        return [self._launch(batch, ratio, chunk) for chunk in plan]

    def _launch(self, batch: Batch, ratio: int, chunk: GatherChunk) -> CombineLaunch:
        buffers, tokens = self.buffers, chunk.stop - chunk.start
        first, last = batch.num_decodes + chunk.first, batch.num_decodes + chunk.last
        own = slice(batch.num_decode_tokens + chunk.start, batch.num_decode_tokens + chunk.stop)
        selection, top_k = buffers.topk[own], 0
        if ratio == INDEXER_RATIO:
            top_k = buffers.index_topk
        elif ratio > 1:
            top_k = buffers.active_width(chunk.states)
            selection = buffers.all_states[chunk.start : chunk.stop, :top_k]
        width = row_width(top_k, buffers.window, buffers.max_image_tokens)
        indices = buffers.combined[: tokens * width].view(tokens, width)
        launch = functools.partial(
            combine_topk_swa_indices,
            selection,
            buffers.query_start_loc[first : last + 1],
            buffers.seq_lens[first:last],
            buffers.gather_lens[chunk.first : chunk.last],
            top_k=top_k,
            compress_ratio=ratio,
            window_size=buffers.window,
            slots_per_request=chunk.slots,
            compressed_slots=chunk.states,
            max_image_tokens=buffers.max_image_tokens,
            left_visible=buffers.left_visible[own] if buffers.has_image else None,
            right_visible=buffers.right_visible[own] if buffers.has_image else None,
            indices=indices,
            lens=buffers.combined_lens[:tokens],
        )
        return CombineLaunch(chunk, indices, launch)
