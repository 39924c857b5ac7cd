"""States of several tokens: a gated mean of the raw rows of `ratio` consecutive tokens.

state = norm(sum over tokens j of softmax_j(gate_j) * raw_j), for each channel, written when the
last of the tokens comes. Raw rows of tokens whose state is not complete wait in a ring of `ratio`
rows a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from jitwarm.zoo.layers.norm import RMSNorm
from jitwarm.zoo.layers.weights import Weights


@dataclass(frozen=True, slots=True)
class CompressPlan:
    """Which raw rows make the states that a step completes, for one ratio; all int64 on the device.

    `sources` [S, ratio] into the ring followed by the step's rows; `tokens` [S] the step's token
    that completes each state; the ring takes the step's rows `kept` at the places `places`.
    """

    sources: torch.Tensor
    tokens: torch.Tensor
    places: torch.Tensor
    kept: torch.Tensor


def compress_plan(
    query_lens: Sequence[int], seq_lens: Sequence[int], ratio: int, max_rows: int, device: str
) -> CompressPlan:
    """The plan of a batch whose row r is the request of ring r.

    Everything is known on the host, so nothing waits for the device. A row whose sequence is
    shorter than its query is padding and completes nothing.
    """
    sources: list[Any] = []
    tokens, places, kept = [], [], []
    first_token = 0
    for row, (new, total) in enumerate(zip(query_lens, seq_lens, strict=True)):
        start = total - new
        if start >= 0:
            last = np.arange(start + (-start - 1) % ratio, total, ratio, dtype=np.int64)
            members = last[:, None] + np.arange(1 - ratio, 1)
            in_step = max_rows * ratio + first_token + members - start
            sources.append(np.where(members >= start, in_step, row * ratio + members % ratio))
            tokens.append(first_token + last - start)
            waiting = np.arange(max(start, total - ratio), total, dtype=np.int64)
            places.append(row * ratio + waiting % ratio)
            kept.append(first_token + waiting - start)
        first_token += new
    empty = [np.zeros(0, dtype=np.int64)]

    def on_device(parts: Sequence[Any]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts or empty)).to(device)

    return CompressPlan(
        on_device(sources).view(-1, ratio), on_device(tokens), on_device(places), on_device(kept)
    )


class Compressor:
    """Weights and ring of one layer: hidden states to states of `size`."""

    def __init__(
        self, weights: Weights, name: str, hidden: int, size: int, ratio: int, max_rows: int
    ) -> None:
        """Draw the weights under `name`; the ring is zeroed."""
        self.size = size
        self.to_raw = weights.matrix(f"{name}.raw", 2 * size, hidden)
        self.norm = RMSNorm(weights, f"{name}.norm", size)
        self.ring = self.to_raw.new_zeros(max_rows * ratio, 2 * size)

    def __call__(self, x: torch.Tensor, plan: CompressPlan) -> torch.Tensor:
        """The states [S, size] that hidden states [T, hidden] complete; the ring moves on."""
        raw = x @ self.to_raw.t()
        members = torch.cat((self.ring, raw))[plan.sources]
        values, gates = members[..., : self.size], members[..., self.size :]
        mean = (torch.softmax(gates.float(), dim=1) * values.float()).sum(1).to(x.dtype)
        self.ring.index_copy_(0, plan.places, raw[plan.kept])
        return self.norm(mean)
