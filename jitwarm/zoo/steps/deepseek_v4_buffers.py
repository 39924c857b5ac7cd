"""Device memory of a DeepSeek-V4 step: the batch, and inputs and outputs of the kernels.

Made once for the largest batch, used from their start, shared by all layers. Contents that no
kernel reads as an index are never written.
"""

from __future__ import annotations

import torch

from jitwarm.config import EngineConfig
from jitwarm.traffic import Batch
from jitwarm.zoo.kernels.combine_topk_swa_indices import INDEXER_RATIO, ROW_STEP, row_width
from jitwarm.zoo.steps.image_spans import visible_counts
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES, most_keys
from jitwarm.zoo.steps.step_buffers import BatchBuffers, fill_start

INDEXER_DTYPE = torch.float8_e4m3fn


class V4Buffers(BatchBuffers):
    """The batch, its validity and images, and scratch for every kernel of a step.

    `config` is the model's own: with its vision tower, where it has one.
    """

    def __init__(
        self,
        config: EngineConfig,
        device: str,
        decode_query_len: int,
        max_scores: int = MAX_SCORES,
    ) -> None:
        """Allocate for the largest batch; each decode row has `decode_query_len` new tokens, and a
        chunk of the indexer `max_scores` scores.
        """
        super().__init__(config, device)
        scheduler, model = config.scheduler_config, config.model_config.hf_config
        rows, tokens = scheduler.max_num_seqs, scheduler.max_num_batched_tokens
        decodes = min(rows, tokens // decode_query_len)
        decode_tokens = decodes * decode_query_len
        self.window, self.max_image_tokens = model.sliding_window, model.vision_max_n_token
        self.index_topk = model.index_topk

        def empty(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        self.is_valid = torch.zeros(tokens, dtype=torch.bool, device=device)
        seen = tokens if self.max_image_tokens else 0
        self.left_visible = torch.zeros(seen, dtype=torch.int32, device=device)
        self.right_visible = torch.zeros_like(self.left_visible)
        self.has_image = False
        # Rows of the sliding window: decode and prefill each have buffers of their own.
        self.decode_window = empty(decode_tokens, 1, self.window)
        self.prefill_window = empty(tokens, 1, self.window + self.max_image_tokens)
        self.decode_window_lens, self.prefill_window_lens = empty(decode_tokens), empty(tokens)
        # Of the draft batch, if there are drafts: the window and all new tokens of the request.
        width = -(-(self.window + decode_query_len - 1) // 64) * 64
        drafted = decode_tokens if decode_query_len > 1 else 0
        self.draft_window, self.draft_window_lens = empty(drafted, 1, width), empty(drafted)
        self.compressed_slots = empty(tokens, dtype=torch.int64)
        self.gather_lens = empty(rows)

        # The indexer: its selection holds ids of compressed states, which are read as numbers.
        width = model.index_n_heads * model.index_head_dim
        self.queries = torch.zeros(decode_tokens, width, dtype=INDEXER_DTYPE, device=device)
        self.packed_queries = empty(decodes, decode_query_len, width, dtype=INDEXER_DTYPE)
        self.topk = torch.zeros(tokens, self.index_topk, dtype=torch.int32, device=device)
        self.selected = torch.zeros(
            decodes, decode_query_len, self.index_topk, dtype=torch.int32, device=device
        )
        self.decode_lens = torch.full((rows,), decode_query_len, dtype=torch.int32, device=device)
        self.expanded_seq_lens, self.expanded_lens = empty(decode_tokens), empty(decode_tokens)
        self.starts, self.ends = empty(tokens), empty(tokens)
        indexed = -(-config.model_config.max_model_len // INDEXER_RATIO)
        self.token_to_seq = empty(min(rows * indexed, most_keys(indexed, max_scores)))

        # Layers that compress most attend to all states: the longest context sets the width.
        longest = -(-config.model_config.max_model_len // max(1, *model.compress_ratios))
        self.most_states = -(-longest // ROW_STEP) * ROW_STEP
        self.all_states = empty(tokens, self.most_states)
        most = max(self.most_states, self.index_topk)
        self.combined = empty(tokens * row_width(most, self.window, self.max_image_tokens))
        self.combined_lens = empty(tokens)

    def active_width(self, states: int) -> int:
        """The bucket of an "all states" selection: doubling from 128 up to the longest context's.

        `states` is what the longest request of a chunk has.
        """
        width = ROW_STEP
        while width < states:
            width *= 2
        return min(width, self.most_states)

    def fill(self, batch: Batch) -> None:
        """Copy a batch to the device, its images with it."""
        self.copy(batch)
        counts = visible_counts(batch, self.max_image_tokens) if self.max_image_tokens else None
        self.has_image = counts is not None
        if counts is not None:
            fill_start(self.left_visible, counts[0])
            fill_start(self.right_visible, counts[1])

    def mark_valid(self, slots: torch.Tensor) -> None:
        """A token without a slot is padding: `slots` int64 [tokens] are those of the window."""
        torch.ge(slots, 0, out=self.is_valid[: slots.shape[0]])
