"""Calls of the library on tensors without storage: torch's fake mode, in which the library
computes its keys and compiles, and launches nothing.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

from jitwarm.backends.fa4 import library
from jitwarm.backends.fa4.caches import Compile, capturing, probing
from jitwarm.backends.fa4.hooks import watching
from jitwarm.backends.fa4.pending import Asked
from jitwarm.backends.fa4.recipe import Callback, FA4Recipe
from jitwarm.declare.tensor import TensorSpec, dtype_name
from jitwarm.errors import BindingError


def probe(recipe: FA4Recipe) -> list[Asked]:
    """The keys that a call of `recipe` asks the library's caches for, in order.

    Compiles nothing. Raises `BindingError` where the library refuses the call, and
    `MissingExtraError` where it is not installed.
    """
    with probing() as asked:
        try:
            _call_on_fakes(recipe)
        except (AssertionError, NotImplementedError, TypeError, ValueError) as error:
            raise BindingError(f"{recipe.entry} refuses this call: {error}") from error
    return asked


def compile_call(recipe: FA4Recipe) -> None:
    """Compile what a call of `recipe` needs and is not there. Raises what the compiler raises."""
    _call_on_fakes(recipe)


def capture(recipe: FA4Recipe) -> dict[Asked, Compile]:
    """What `compile_call` would compile, not compiled. Raises what the library raises."""
    with capturing() as captured:
        _call_on_fakes(recipe)
    return captured


def _call_on_fakes(recipe: FA4Recipe) -> None:
    with watching(library.interface("attention")):
        run_on_fakes(function_at(recipe.entry), dict(recipe.arguments))


def run_on_fakes(function: Any, arguments: Mapping[str, Any]) -> Any:
    """Call `function` with a fake tensor for each tensor (or `TensorSpec`) of `arguments`."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    fakes = {name: _fake(value, mode) for name, value in arguments.items()}
    with mode:
        return function(**fakes)


def function_at(path: str) -> Any:
    """The function at an import path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _fake(value: Any, mode: Any) -> Any:
    if isinstance(value, Callback):
        return value.resolve()
    if isinstance(value, tuple | list):
        return [_fake(item, mode) for item in value]
    if not hasattr(value, "stride") or not hasattr(value, "dtype"):
        return value
    return fake_tensor(value, mode)


def fake_tensor(value: Any, mode: Any) -> Any:
    """A tensor of the GPU without storage, with shape, strides, dtype and alignment of `value` (a
    tensor or a `TensorSpec`).
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    dtype = getattr(torch, dtype_name(value.dtype))
    shape, strides = tuple(value.shape), tuple(value.stride())
    aligned = value.numel() == 0 or value.data_ptr() % 16 == 0
    # The constructor, not torch.empty: a torch without CUDA cannot index its fake tensors.
    meta = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    if not aligned:
        size = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        whole = torch.empty(size + 1, dtype=dtype, device="meta")
        meta = whole.as_strided(shape, strides, 1)
    return FakeTensor(mode, meta, torch.device("cuda", library.index()))


def scratch_tensor(spec: TensorSpec, where: str = "cuda") -> Any:
    """A tensor in GPU memory with the layout of `spec`, filled as its `init` says."""
    import torch

    dtype = getattr(torch, dtype_name(spec.dtype))
    strides = spec.stride()
    size = 1 + sum((n - 1) * s for n, s in zip(spec.shape, strides, strict=True))
    offset = 0 if spec.data_ptr() == 0 else 1
    whole = torch.zeros(max(size, math.prod(spec.shape)) + offset, dtype=dtype, device=where)
    tensor = whole.as_strided(spec.shape, strides, offset)
    if callable(spec.init):
        spec.init(tensor)
    elif spec.init:
        tensor.fill_(spec.init)
    return tensor
