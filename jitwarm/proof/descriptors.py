"""Warm-ups that go through Triton's own stand-in for a tensor, whose strides are wrong from three
dimensions on: it multiplies neighbouring extents, and not all that follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from jitwarm.declare.tensor import TensorSpec
from jitwarm.findings import Finding

Strides = tuple[int, ...]


@contextmanager
def watched_descriptors() -> Iterator[dict[Strides, tuple[Strides, Strides]]]:
    """While it lasts, note each shape for which a `MockTensor` was asked for its strides and gave
    others than a contiguous tensor has: shape -> (given, right). Nothing without Triton.
    """
    wrong: dict[Strides, tuple[Strides, Strides]] = {}
    try:
        from triton.runtime.jit import MockTensor
    except ImportError:
        yield wrong
        return
    original: Any = MockTensor.stride

    def stride(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        shape = tuple(getattr(tensor, "shape", None) or ())
        given = original(tensor)
        right = TensorSpec("int8", shape=shape).stride() if shape else ()
        if shape and tuple(given) != right:
            wrong[shape] = (tuple(given), right)
        return original(tensor, *args, **kwargs)

    MockTensor.stride = stride
    try:
        yield wrong
    finally:
        MockTensor.stride = original


def descriptors_text(wrong: dict[Strides, tuple[Strides, Strides]]) -> str:
    """What was noted, in words; empty where nothing was."""
    return "; ".join(
        f"the strides of MockTensor of shape {shape} are {given}, a contiguous tensor's are {right}"
        for shape, (given, right) in wrong.items()
    )


def with_descriptors(findings: Iterable[Finding], said: str) -> list[Finding]:
    """The findings; the misses of integers with what the warm-up's descriptors got wrong."""
    if not said:
        return list(findings)
    advice = f"warm up with the strides of a real tensor or a TensorSpec: {said}"
    return [
        replace(one, advice=f"{one.advice}; {advice}" if one.advice else advice)
        if one.kind == "MISS" and not one.seen.startswith("*")
        else one
        for one in findings
    ]
