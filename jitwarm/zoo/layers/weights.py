"""Random weights, the same for a name in every process, and the one way to make a model smaller.

Weights are drawn on the device that uses them: a model of 100 GiB is never copied. A generator of
the CPU and one of a GPU draw different numbers, so "the same" holds for one kind of device.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import torch

from jitwarm.errors import ScenarioError

# What `scale` divides: sizes that only matrix products see. Heads, head sizes, latent ranks of the
# cache, extents and windows stay: kernels are compiled for them.
SCALED = ("hidden_size", "intermediate_size", "q_lora_rank", "vocab_size")


@dataclass(frozen=True, slots=True)
class Scale:
    """The option `scale` of a scenario: the sizes named in `SCALED` are divided by `factor`."""

    factor: int = 1
    model: str = "model"

    def __call__(self, name: str, size: int) -> int:
        """Size `name` of the scaled model.

        Raises `ScenarioError` if the factor does not divide it, or is less than 1, and `ValueError`
        for a name that is never scaled.
        """
        if name not in SCALED:
            raise ValueError(f"{name} is not scaled: only {', '.join(SCALED)} are")
        if self.factor < 1 or size % self.factor:
            raise ScenarioError(
                f"model {self.model}",
                "$.options.scale",
                f"{self.factor} does not divide {name} {size}",
            )
        return size // self.factor


@dataclass(frozen=True, slots=True)
class Weights:
    """Draws weights of one model on `device` (`"cuda"`, `"cpu"`), in `dtype`."""

    device: str
    dtype: torch.dtype = torch.bfloat16
    seed: int = 0

    def matrix(self, name: str, *shape: int, fan_in: int | None = None) -> torch.Tensor:
        """Normal numbers of deviation 1/sqrt(fan_in), the last size unless said.

        So a product with inputs of deviation 1 has deviation 1 again. The same (seed, name, shape)
        gives the same numbers; names of one model must differ.
        """
        text = f"{self.seed}/{name}".encode()
        generator = torch.Generator(device=self.device).manual_seed(zlib.crc32(text))
        drawn = torch.empty(shape, dtype=self.dtype, device=self.device)
        deviation = 1 / math.sqrt(shape[-1] if fan_in is None else fan_in)
        return drawn.normal_(0.0, deviation, generator=generator)

    def gain(self, name: str, size: int) -> torch.Tensor:
        """[size] numbers near 1, for a norm."""
        return self.matrix(name, size, fan_in=100) + 1
