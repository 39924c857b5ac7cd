"""One DeepSeek-V4 layer in torch: the projections around the kernels of its window, its states and
its indexer.

One key/value head of `head_dim` numbers a token serves all query heads; its last `rope` numbers are
rotated. A layer that compresses keeps states of `ratio` tokens beside the window; one with an
indexer scores states by keys of its own and reads the best.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from jitwarm.config import HFConfig
from jitwarm.zoo.layers.compressor import Compressor, CompressPlan
from jitwarm.zoo.layers.norm import RMSNorm
from jitwarm.zoo.layers.rotary import rotate
from jitwarm.zoo.layers.weights import Scale, Weights

Angles = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Sizes of one layer on this rank: compress ratio, query heads, output groups, and rows of its
    caches: of the window's tokens, of the states (0: none), of requests.
    """

    ratio: int
    heads: int
    groups: int
    window_slots: int
    state_slots: int
    max_rows: int


class WindowAttentionLayer:
    """Weights and caches of one layer.

    `window` [slots + 1, head_dim] and, for a layer with states, `states` [slots + 1, head_dim] and
    for an indexer `index_keys` [slots + 1, index size]: the last row takes what has no slot.
    """

    def __init__(
        self,
        weights: Weights,
        name: str,
        model: HFConfig,
        sizes: LayerSizes,
        scale: Scale,
        *,
        indexer: bool,
    ) -> None:
        """Draw the weights under `name` and allocate the caches, zeroed."""
        hidden = scale("hidden_size", model.hidden_size)
        q_rank = scale("q_lora_rank", model.q_lora_rank)
        self.head_dim, self.nope = model.head_dim, model.qk_nope_head_dim
        self.heads, self.groups = sizes.heads, sizes.groups
        self.index_heads, self.index_size = model.index_n_heads, model.index_head_dim
        self.norm = RMSNorm(weights, f"{name}.norm", hidden)
        self.q_norm = RMSNorm(weights, f"{name}.q_norm", q_rank)
        self.kv_norm = RMSNorm(weights, f"{name}.kv_norm", self.head_dim)

        def matrix(part: str, *shape: int) -> torch.Tensor:
            return weights.matrix(f"{name}.{part}", *shape)

        self.q_a = matrix("q_a", q_rank, hidden)
        self.q_b = matrix("q_b", sizes.heads * self.head_dim, q_rank)
        self.kv = matrix("kv", self.head_dim, hidden)
        self.sink = weights.matrix(f"{name}.sink", sizes.heads, fan_in=1)
        by_group = sizes.heads // sizes.groups * self.head_dim
        self.out_a = matrix("out_a", sizes.groups, model.o_lora_rank, by_group)
        self.out_b = matrix("out_b", hidden, sizes.groups * model.o_lora_rank)
        self.window = self.kv.new_zeros(sizes.window_slots + 1, self.head_dim)
        self.states = self.kv.new_zeros(sizes.state_slots + 1, self.head_dim)
        self.compressor = self.index_compressor = None
        if sizes.state_slots:
            rows = (sizes.ratio, sizes.max_rows)
            self.compressor = Compressor(weights, f"{name}.states", hidden, self.head_dim, *rows)
            if indexer:
                self.index_q = matrix("index_q", self.index_heads * self.index_size, q_rank)
                self.index_w = matrix("index_w", self.index_heads, hidden)
                self.index_keys = self.kv.new_zeros(sizes.state_slots + 1, self.index_size)
                self.index_compressor = Compressor(
                    weights, f"{name}.index", hidden, self.index_size, *rows
                )

    def project(
        self, hidden: torch.Tensor, slots: torch.Tensor, angles: Angles
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normed hidden states, query latents, and queries [T, heads, head_dim], of hidden states
        [T, hidden]; the key/value rows go to `slots` int64 [T] of the window.
        """
        x = self.norm(hidden)
        latent = self.q_norm(x @ self.q_a.t())
        queries = (latent @ self.q_b.t()).view(-1, self.heads, self.head_dim)
        queries[..., self.nope :] = rotate(queries[..., self.nope :], angles)
        row = self.kv_norm(x @ self.kv.t())
        row[:, self.nope :] = rotate(row[:, self.nope :], angles)
        self.window.index_copy_(0, slots, row)
        return x, latent, queries

    def compress(self, x: torch.Tensor, plan: CompressPlan, slots: torch.Tensor) -> None:
        """Write the states that normed hidden states [T, hidden] complete, and their index keys;
        `slots` int64 [T] are those of the states that each token completes.
        """
        own = slots[plan.tokens]
        if self.compressor is not None:
            self.states.index_copy_(0, own, self.compressor(x, plan))
        if self.index_compressor is not None:
            self.index_keys.index_copy_(0, own, self.index_compressor(x, plan))

    def index(self, x: torch.Tensor, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Index queries [T, index heads, index size] and weights [T, index heads]."""
        queries = (latent @ self.index_q.t()).view(-1, self.index_heads, self.index_size)
        return queries, x @ self.index_w.t()

    def output(self, hidden: torch.Tensor, attended: torch.Tensor, angles: Angles) -> torch.Tensor:
        """Hidden states plus the projection of attended rows [T, heads, head_dim], whose rotated
        part is turned back first: the values were rotated with the keys.
        """
        cos, sin = angles
        turned = rotate(attended[..., self.nope :], (cos, -sin))
        grouped = torch.cat((attended[..., : self.nope], turned), dim=-1)
        grouped = grouped.view(hidden.shape[0], self.groups, -1).transpose(0, 1)
        low = torch.bmm(grouped, self.out_a.transpose(1, 2)).transpose(0, 1)
        return hidden + low.reshape(hidden.shape[0], -1) @ self.out_b.t()
