"""Rotary position embedding."""

from __future__ import annotations

import torch


class Rotary:
    """Rotates pairs (x[i], x[i + size/2]) by position / base**(2i / size); size even.

    Computed in float32 and rounded once. Su et al., "RoFormer: Enhanced Transformer with Rotary
    Position Embedding", equation 34, in the half-split layout.
    """

    def __init__(self, size: int, device: str, base: float = 10000.0) -> None:
        """Frequencies for vectors of `size`."""
        exponent = torch.arange(0, size, 2, dtype=torch.float32, device=device) / size
        self.frequencies = base**-exponent

    def angles(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [T, size/2] of positions int64 [T]: once a step, for all layers."""
        angle = positions.float()[:, None] * self.frequencies
        return angle.cos(), angle.sin()


def rotate(x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """X [T, ..., size] rotated by the angles of its rows."""
    cos, sin = (a.view(a.shape[0], *(1,) * (x.dim() - 2), a.shape[1]) for a in angles)
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)
