"""The output head: from hidden states to the token that each request emits."""

from __future__ import annotations

import torch

from jitwarm.zoo.layers.norm import RMSNorm
from jitwarm.zoo.layers.weights import Weights


class OutputHead:
    """Final norm, projection to the vocabulary, greedy choice.

    The projection [vocab, hidden] is whole on every rank, as the embedding is.
    """

    def __init__(self, weights: Weights, name: str, vocab: int, hidden: int) -> None:
        """A norm and a projection of its own, drawn under `name`."""
        self.norm = RMSNorm(weights, f"{name}.norm", hidden)
        self.projection = weights.matrix(f"{name}.projection", vocab, hidden)

    def logits(self, hidden: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Scores [R, vocab] of the rows `last` int64 [R] of hidden [T, hidden]."""
        return torch.mm(self.norm(hidden.index_select(0, last)), self.projection.t())

    def __call__(self, hidden: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """The token id int64 [R] of each request: the highest score at its last token.

        `last` int64 [R] are the indices of these tokens in hidden [T, hidden]. Among equal scores
        (bf16 has many) torch chooses.
        """
        return self.logits(hidden, last).argmax(-1)
