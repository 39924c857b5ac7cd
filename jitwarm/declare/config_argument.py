"""Hand the engine's configuration to functions that ask for it by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jitwarm.errors import DeclarationError

CONFIG_NAMES = ("config", "vllm_config")


def supply_config(
    kernel: str,
    function: Callable[..., Any],
    config: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> dict[str, Any]:
    """The keyword arguments of a registration, with the configuration added where `function` asks
    for it.

    A parameter named `config` or `vllm_config` that the registration left open gets `config`.
    Raises `DeclarationError`, naming the kernel, if the registration does not fit the function.
    """
    signature = inspect.signature(function)
    try:
        bound = signature.bind_partial(*args, **kwargs)
        supplied = dict(kwargs)
        for name in CONFIG_NAMES:
            if name in signature.parameters and name not in bound.arguments:
                supplied[name] = config
        signature.bind(*args, **supplied)
    except TypeError as error:
        raise DeclarationError(
            f"{kernel}: registered with arguments that do not fit "
            f"{getattr(function, '__qualname__', function)}{signature}: {error}"
        ) from error
    return supplied
