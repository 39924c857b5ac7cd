"""One sparse MLA layer in torch: the projections around the kernels of an indexer and an attention.

Multi-head latent attention keeps one latent row a token, [latent, rope]; queries are multiplied
into the latent space, so that attention has one key/value head. An indexer scores all earlier
tokens with small heads of its own and attention reads the best.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from jitwarm.config import HFConfig
from jitwarm.zoo.layers.norm import RMSNorm
from jitwarm.zoo.layers.rotary import rotate
from jitwarm.zoo.layers.weights import Scale, Weights

Angles = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Projected:
    """What a layer computes from its hidden states [T, hidden] before attention.

    queries [T, heads, nope + rope] not yet in the latent space; index_queries [T, index heads,
    index size]; index_weights [T, index heads].
    """

    queries: torch.Tensor
    index_queries: torch.Tensor
    index_weights: torch.Tensor


class SparseMLALayer:
    """Weights and caches of one layer; `heads` are those of this rank.

    `cache` [slots + 1, latent + rope] and `index_keys` [slots + 1, index size] take a row a token;
    the last takes the tokens without a slot. Experts, and the sums over ranks, are left out.
    """

    def __init__(
        self, weights: Weights, name: str, model: HFConfig, heads: int, scale: Scale, slots: int
    ) -> None:
        """Draw the weights under `name` and allocate the caches, zeroed."""
        hidden = scale("hidden_size", model.hidden_size)
        q_rank = scale("q_lora_rank", model.q_lora_rank)
        self.nope, self.rope, self.latent = (
            model.qk_nope_head_dim,
            model.qk_rope_head_dim,
            model.kv_lora_rank,
        )
        self.value, self.heads = model.v_head_dim, heads
        self.index_heads, self.index_size = model.index_n_heads, model.index_head_dim
        self.norm = RMSNorm(weights, f"{name}.norm", hidden)
        self.q_norm = RMSNorm(weights, f"{name}.q_norm", q_rank)
        self.kv_norm = RMSNorm(weights, f"{name}.kv_norm", self.latent)

        def matrix(part: str, *shape: int) -> torch.Tensor:
            return weights.matrix(f"{name}.{part}", *shape)

        self.q_a = matrix("q_a", q_rank, hidden)
        self.q_b = matrix("q_b", heads * (self.nope + self.rope), q_rank)
        self.kv_a = matrix("kv_a", self.latent + self.rope, hidden)
        self.kv_b = matrix("kv_b", heads * (self.nope + self.value), self.latent)
        self.out = matrix("out", hidden, heads * self.value)
        self.index_q = matrix("index_q", self.index_heads * self.index_size, q_rank)
        self.index_k = matrix("index_k", self.index_size, hidden)
        self.index_w = matrix("index_w", self.index_heads, hidden)
        by_head = self.kv_b.view(heads, self.nope + self.value, self.latent)
        self.key_part, self.value_part = by_head[:, : self.nope], by_head[:, self.nope :]
        self.cache = self.kv_a.new_zeros(slots + 1, self.latent + self.rope)
        self.index_keys = self.kv_a.new_zeros(slots + 1, self.index_size)

    def project(self, hidden: torch.Tensor, slots: torch.Tensor, angles: Angles) -> Projected:
        """Project hidden states [T, hidden], and write latents and index keys to the rows `slots`
        int64 [T] of the caches.
        """
        x = self.norm(hidden)
        q = self.q_norm(x @ self.q_a.t())
        queries = (q @ self.q_b.t()).view(-1, self.heads, self.nope + self.rope)
        queries[..., self.nope :] = rotate(queries[..., self.nope :], angles)
        latent = x @ self.kv_a.t()
        row = (self.kv_norm(latent[:, : self.latent]), rotate(latent[:, self.latent :], angles))
        self.cache.index_copy_(0, slots, torch.cat(row, dim=-1))
        self.index_keys.index_copy_(0, slots, x @ self.index_k.t())
        index_queries = (q @ self.index_q.t()).view(-1, self.index_heads, self.index_size)
        return Projected(queries, index_queries, x @ self.index_w.t())

    def absorbed(self, queries: torch.Tensor) -> torch.Tensor:
        """Queries [T, heads, nope + rope] in the latent space: [T, heads, latent + rope]."""
        nope = torch.bmm(queries[..., : self.nope].transpose(0, 1), self.key_part).transpose(0, 1)
        return torch.cat((nope, queries[..., self.nope :]), dim=-1)

    def expanded(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys [S, heads, nope + rope] and values [S, heads, value], a slice of the joint
        projection, of latent rows [S, latent + rope].
        """
        joint = (rows[:, : self.latent] @ self.kv_b.t()).view(rows.shape[0], self.heads, -1)
        rope = rows[:, None, self.latent :].expand(-1, self.heads, -1)
        return torch.cat((joint[..., : self.nope], rope), dim=-1), joint[..., self.nope :]

    def values(self, attended: torch.Tensor) -> torch.Tensor:
        """Attended latents [T, heads, latent] as values [T, heads, value]."""
        return torch.bmm(attended.transpose(0, 1), self.value_part.transpose(1, 2)).transpose(0, 1)

    def output(self, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Hidden states plus the projected values [T, heads, value]."""
        return hidden + attended.reshape(hidden.shape[0], -1) @ self.out.t()
