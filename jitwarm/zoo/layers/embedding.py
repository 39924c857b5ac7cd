"""Token ids to hidden states, and the ids of a step."""

from __future__ import annotations

import torch

from jitwarm.traffic import Batch
from jitwarm.zoo.layers.weights import Weights


class TokenEmbedding:
    """A table [vocab, hidden], whole on every rank: engines split it and add the parts up, which
    needs the other ranks.
    """

    def __init__(self, weights: Weights, name: str, vocab: int, hidden: int) -> None:
        """A table of its own, numbers of deviation 1, drawn under `name`."""
        self.table = weights.matrix(name, vocab, hidden, fan_in=1)

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Ids int64 [T] in [0, vocab) -> hidden states [T, hidden]."""
        return self.table.index_select(0, ids)


class TokenFeed:
    """The ids that a step reads.

    Traffic has no texts and its rows no names: row r of a batch is taken for the request that row r
    of the step before was, as the block table takes it. Its first token is the one that this row
    emitted last (0 before the first); prompts, and draft tokens behind the first token of a decode
    row, are fixed random ids.
    """

    def __init__(self, device: str, vocab: int, max_num_seqs: int, max_num_tokens: int) -> None:
        """Buffers for the largest batch."""
        generator = torch.Generator(device="cpu").manual_seed(2)
        prompt = torch.randint(vocab, (max_num_tokens,), dtype=torch.int64, generator=generator)
        self.prompt = prompt.to(device)
        self.ids = torch.zeros_like(self.prompt)
        self.last = torch.zeros(max_num_seqs, dtype=torch.int64, device=device)

    def fill(self, batch: Batch) -> torch.Tensor:
        """Ids int64 [num_tokens] of a batch: a slice of a buffer, valid until the next fill."""
        ids = self.ids[: batch.num_tokens]
        ids.copy_(self.prompt[: batch.num_tokens])
        if batch.num_decodes:
            first = ids[: batch.num_decode_tokens : batch.decode_query_len]
            first.copy_(self.last[: batch.num_decodes])
        return ids

    def emitted(self, tokens: torch.Tensor) -> None:
        """Remember the token int64 [rows] that each row of the batch emitted."""
        self.last[: tokens.shape[0]].copy_(tokens)
