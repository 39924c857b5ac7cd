"""The contract class for kernels of flash-attn-4."""

from __future__ import annotations

from typing import Any

from jitwarm.backends import backend_of
from jitwarm.backends.fa4.recipe import FA4Recipe
from jitwarm.contract.kernel import JitKernel, KeyT
from jitwarm.errors import DeclarationError


class FA4JitKernel(JitKernel[KeyT]):
    """A kernel that calls flash-attn-4, with its compile keys.

    A subclass writes `recipe(key)`, which returns an `FA4Recipe`: the library's own key of that
    call is the backend key. Several declared keys usually share one.
    """

    def recipe(self, key: KeyT) -> FA4Recipe:
        """The call that `key` stands for."""
        raise DeclarationError(
            f"{self.kernel_name}: the class has no recipe(key); return the FA4Recipe of a key"
        )

    def compile(self, key: KeyT) -> Any:
        """Compile what a call of `key` needs, launching nothing."""
        recipe = self.recipe(key)
        executor = self._compiled_cache[key] = backend_of(recipe).compile(recipe)
        return executor


def starts_of_requests(tensor: Any) -> None:
    """Fill `cu_seqlens` of a scratch launch: two tokens of the first request, one of each other.

    Two, because a dimension of one element may lose its stride on the way to the compiler, which
    then cannot tell the contiguous dimension.
    """
    import torch

    torch.arange(tensor.shape[0], out=tensor)
    tensor[1:] += 1
