"""Who launched: the innermost frame outside the compilers and jitwarm's own machinery."""

from __future__ import annotations

import inspect
from types import FrameType

_MACHINERY = (
    "triton.",
    "cutlass.",
    "tvm_ffi.",
    "jitwarm.backends.",
    "jitwarm.observe.monitor",
    "jitwarm.observe.callsite",
    "jitwarm.warm",
    "jitwarm.contract.",
    "concurrent.futures",
    "threading",
    "contextlib",
)


def caller() -> FrameType | None:
    """The frame of the launch that is under way in this thread; None where all is machinery."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_MACHINERY):
        frame = frame.f_back
    return frame


def site(frame: FrameType | None) -> str:
    """`module.function:line` of a frame."""
    if frame is None:
        return ""
    return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}:{frame.f_lineno}"


def place(frame: FrameType | None) -> str:
    """`file:line` of a frame."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
