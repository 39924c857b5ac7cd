"""The round trip of a key: `warmup_inputs(key)` has to lead `__call__` back to `key`.

Where it leads to another key, warm-up compiles the binary of that one under the name of the asked
one, and the launch that needs the asked one compiles while serving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

from jitwarm import keys
from jitwarm.contract.keytype import key_fields
from jitwarm.errors import DeclarationError


class DispatchRecorder:
    """Stands in for a kernel's `dispatch` and keeps what it returned."""

    def __init__(self, dispatch: Callable[..., Any]) -> None:
        """`dispatch` is that of the live kernel, bound, with whatever decorates it."""
        self.dispatch = dispatch
        self.returned: list[Any] = []

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """The key of the live kernel's dispatch."""
        key = self.dispatch(*args, **inputs)
        self.returned.append(key)
        return key

    def __getattr__(self, name: str) -> Any:
        """What else a decorated dispatch offers, such as `cache_info` of an lru_cache."""
        return getattr(self.dispatch, name)


def recording_copy(kernel: Any) -> tuple[Any, DispatchRecorder]:
    """A shallow copy of `kernel` whose `dispatch` is recorded, and the recorder.

    Each warm-up of a key gets a copy of its own, so the live object is never touched and launches
    of other threads are neither recorded nor disturbed. Methods that the instance keeps under other
    names are bound to the copy.
    """
    recorder = DispatchRecorder(kernel.dispatch)
    copy = object.__new__(type(kernel))
    # Not `copy.copy`: a class may define for pickling what a call cannot do without.
    state: Any = object.__getstate__(kernel)
    attributes, slots = state if isinstance(state, tuple) else (state, {})
    for name, value in slots.items():
        object.__setattr__(copy, name, value)
    own: dict[str, Any] = copy.__dict__
    own.update(attributes)
    for name, value in own.items():
        if isinstance(value, MethodType) and value.__self__ is kernel:
            same = value == recorder.dispatch
            own[name] = recorder if same else MethodType(value.__func__, copy)
    own["dispatch"] = recorder
    return copy, recorder


def check_round_trip(
    kernel: Any, key: Any, returned: Sequence[Any], *, replaced: frozenset[str] = frozenset()
) -> None:
    """Raise `DeclarationError` if `__call__` asked dispatch for keys and none of them is `key`.

    `returned` is what dispatch gave; what is no key of this kernel does not count. Keys compare by
    type and value. Fields in `replaced` may differ, because warm-up takes them from `key`.
    """
    if not returned:
        return
    kind = kernel._key_type()
    differences = [_differences(key, got, replaced) for got in returned if isinstance(got, kind)]
    if differences and all(differences):
        nearest = min(differences, key=len)
        raise DeclarationError(
            f"{kernel.kernel_name}: warmup_inputs(key) leads __call__ to another key: "
            f"{', '.join(nearest)}; put what dispatch needs into the key or into the inputs "
            f"(key: {kernel.key_text(key)})"
        )


def _differences(asked: Any, got: Any, replaced: frozenset[str]) -> list[str]:
    """What differs, as `block 16 instead of 4096`; nothing where the keys are the same."""
    if keys.exact(asked) == keys.exact(got):
        return []
    fields = key_fields(asked) if type(asked) is type(got) else ()
    if not fields:
        return [f"{keys.canonical(got)} instead of {keys.canonical(asked)}"]
    pairs = [(name, getattr(asked, name), getattr(got, name)) for name in fields]
    return [
        f"{name} {keys.canonical(there)} instead of {keys.canonical(here)}"
        for name, here, there in pairs
        if name not in replaced and keys.exact(here) != keys.exact(there)
    ]
