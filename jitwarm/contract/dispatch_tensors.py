"""Call a dispatch function for warm-up: with stand-ins, or with fake tensors where it needs more.

A stand-in answers what a dispatch usually asks (shape, strides, dtype, alignment). A dispatch that
indexes a tensor or allocates its output gets fake tensors: torch's operators take them, and they
have no storage.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from jitwarm.declare.tensor import TensorSpec
from jitwarm.declare.torch_tensor import fake_tensor, with_torch_dtype

# What a stand-in raises where it lacks something, or torch where it is no tensor.
_LACKS = (AssertionError, AttributeError, TypeError)


def evaluate(
    function: Callable[..., Any], inputs: Mapping[str, Any], case: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...]]:
    """What `function(**case)` returns, and the values of its inputs for the binding.

    `inputs` are all parameters with their values, defaults included. Tensors are stand-ins, with
    torch's dtypes. If that raises an AssertionError, AttributeError or TypeError, the function is
    called once more with fake tensors; what it raises then passes through. Of what it returns, an
    input that it hands on is the stand-in again.
    """
    specs = {name: with_torch_dtype(value) for name, value in inputs.items()}
    try:
        return function(**{name: specs[name] for name in case}), tuple(specs.values())
    except _LACKS:
        if not any(isinstance(value, TensorSpec) for value in specs.values()):
            raise
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), warnings.catch_warnings():
        # It says that the address of a fake tensor is not real; its offset is, and that counts.
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        fakes = {
            name: fake_tensor(value) if isinstance(value, TensorSpec) else value
            for name, value in specs.items()
        }
        spec = function(**{name: fakes[name] for name in case})
    known = {id(fakes[name]): specs[name] for name in specs}
    if isinstance(spec, tuple) and len(spec) > 1 and isinstance(spec[1], Mapping):
        kwargs = {name: known.get(id(value), value) for name, value in spec[1].items()}
        spec = (spec[0], kwargs, *spec[2:])
    return spec, tuple(specs.values())
