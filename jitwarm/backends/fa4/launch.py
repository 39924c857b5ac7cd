"""The run-time path of our wrappers around the library.

On a GPU a call goes straight to the library. On the stub device nothing is launched: the call is
made once on fake tensors for each signature of arguments, which computes the library's keys and
compiles what is missing, as the launch would; after that its keys are only counted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from jitwarm import device
from jitwarm.backends import launches
from jitwarm.backends.fa4 import calls, library, pending
from jitwarm.backends.fa4.caches import probing
from jitwarm.backends.fa4.hooks import watching
from jitwarm.backends.fa4.pending import Asked

SIGNATURES = 4096  # remembered, the least recently used is dropped

_lock = threading.Lock()
_known: OrderedDict[tuple[Any, ...], tuple[Asked, ...]] = OrderedDict()


def forward(**arguments: Any) -> tuple[Any, Any]:
    """Call the library's forward entry; returns (out, lse), lse None unless `return_lse`.

    Raises `MissingExtraError` where the library is not installed.
    """
    interface = library.interface("attention")
    if device.current().kind == "cuda":
        try:
            out, lse, *_ = interface._flash_attn_fwd(**arguments)
        finally:
            pending.end_failed()  # a launch that raised is told now, not at the next one
        return out, lse
    _count_on_stub(interface, arguments)
    return _outputs(arguments)


def _count_on_stub(interface: Any, arguments: Mapping[str, Any]) -> None:
    signature = (device.current(), *map(_sign, arguments.items()))
    with _lock:
        asked = _known.get(signature)
        if asked is not None:
            _known.move_to_end(signature)
    with watching(interface) as watched:
        if asked is None:
            with probing() as found:
                calls.run_on_fakes(interface._flash_attn_fwd, arguments)
            asked = tuple(found)
            with _lock:
                _known[signature] = asked
                if len(_known) > SIGNATURES:
                    _known.popitem(last=False)
        if not all(watched[function].in_memory(key) for function, key in asked):
            calls.run_on_fakes(interface._flash_attn_fwd, arguments)
        if launches.counting():
            for function, key in asked:
                launches.count(watched[function].text(key))


def _sign(argument: tuple[str, Any]) -> tuple[Any, ...]:
    """Everything about an argument that the library can key on."""
    name, value = argument
    if isinstance(value, tuple | list):
        return (name, *(_sign((name, item)) for item in value))
    if not hasattr(value, "stride"):
        return (name, type(value), value)
    aligned = value.data_ptr() % 16 == 0
    return (name, value.dtype, tuple(value.shape), tuple(value.stride()), aligned)


def _outputs(arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """What the library would have returned, unwritten: memory that nobody touches costs nothing."""
    import torch

    q, v, out = arguments["q"], arguments["v"], arguments.get("out")
    if out is None:
        out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype, device=q.device)
    if not arguments.get("return_lse"):
        return out, None
    lse = torch.empty((q.shape[1], q.shape[0]), dtype=torch.float32, device=q.device)
    return out, lse
