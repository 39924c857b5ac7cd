"""Inputs and outputs of the layers' kernels: made once, shared by all layers of a model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from jitwarm.config import EngineConfig
from jitwarm.zoo.kernels.compute_slot_mapping import block_table_width
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES, most_keys


@dataclass(frozen=True, slots=True)
class Gathered:
    """Attention output of all ranks' heads and the gathered log-sum-exps of some decode tokens."""

    outputs: torch.Tensor
    lses: torch.Tensor
    vlse: torch.Tensor


class LayerScratch:
    """Inputs and outputs of the layers' kernels, shared by all layers; contents are generated where
    they are read as indices.
    """

    def __init__(
        self,
        config: EngineConfig,
        device: str,
        gathered_heads: int,
        indexer_dtype: torch.dtype,
        max_scores: int = MAX_SCORES,
    ) -> None:
        """Allocate for the largest batch; `gathered_heads` are the heads of the whole DCP group,
        `max_scores` bounds a chunk of the indexer.
        """
        scheduler, model = config.scheduler_config, config.model_config.hf_config
        rows, tokens, topk = (
            scheduler.max_num_seqs,
            scheduler.max_num_batched_tokens,
            model.index_topk,
        )
        self.heads, self.head_dim = gathered_heads, model.kv_lora_rank
        self.world = config.parallel_config.decode_context_parallel_size
        width = block_table_width(
            config.model_config.max_model_len, config.cache_config.block_size, self.world
        )

        def empty(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        generator = torch.Generator(device="cpu").manual_seed(1)
        ids = torch.randint(
            -1,
            config.model_config.max_model_len,
            (tokens, topk),
            dtype=torch.int32,
            generator=generator,
        )
        self.topk = ids.to(device)
        self.selected = self.topk[:rows].clone().view(-1, 1, topk)
        self.queries = torch.zeros(
            rows, model.index_n_heads * model.index_head_dim, dtype=indexer_dtype, device=device
        )
        self.packed_queries = self.queries.new_empty(rows, 1, self.queries.shape[1])
        self.max_scores = max_scores
        self.scores = empty(max_scores if self.world > 1 else 0, dtype=torch.float32)
        self.candidates = (
            empty(tokens, topk, 2, dtype=torch.float32) if self.world > 1 else empty(0)
        )
        rows_gathered = tokens if self.world > 1 else 0
        self.gathered = empty(rows_gathered, self.world * topk, 2, dtype=torch.float32)
        if rows_gathered and device != "cpu":
            # Distinct ids with random scores, as ranks send them: equal ones would be the slowest
            # input of a selection by radix. A host never reads them.
            self.gathered[..., 0].normal_()
            ids = torch.arange(self.world * topk, dtype=torch.float32, device=device)
            self.gathered[..., 1] = ids
        self.rows, self.counts = empty(tokens, topk), empty(tokens)
        self.starts, self.ends = empty(tokens), empty(tokens)
        longest = config.model_config.max_model_len
        self.token_to_seq = empty(min(min(rows, tokens) * longest, most_keys(longest, max_scores)))
        self.gather_lens = empty(rows)
        self.decode_seq_lens, self.expanded_decode_lens = empty(rows), empty(rows)
        self.expanded_block_table = empty(rows, width)
        self.prefill_request_id = torch.full((tokens,), -1, dtype=torch.int32, device=device)
        self.workspace_start = torch.zeros(rows, dtype=torch.int32, device=device)
        # Zeros would hide nothing here: these are only read as numbers, never as indices.
        self.outputs = torch.randn(
            rows, self.heads, self.head_dim, dtype=torch.bfloat16, device=device
        )
        self.lses = torch.randn(self.world * rows * self.heads, dtype=torch.float32, device=device)
        self.vlse = empty(rows, self.heads, dtype=torch.float32)

    def views(self, tokens: int) -> Gathered:
        """The gathered tensors of the first `tokens` decode tokens, contiguous as an all-gather
        leaves them.
        """
        lses = self.lses[: self.world * tokens * self.heads].view(self.world, tokens, self.heads)
        return Gathered(self.outputs[:tokens], lses, self.vlse[:tokens])
