"""Root-mean-square norm."""

from __future__ import annotations

import torch

from jitwarm.zoo.layers.weights import Weights


class RMSNorm:
    """y = x / sqrt(mean(x*x) + eps) * gain over the last dimension; x [..., size] in any float
    dtype, computed in float32 and rounded once to x's dtype.
    """

    def __init__(self, weights: Weights, name: str, size: int, eps: float = 1e-6) -> None:
        """A norm with its own gain, drawn under `name`."""
        self.gain, self.eps = weights.gain(name, size).float(), eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [..., size]."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale * self.gain).to(x.dtype)
