"""Which part of a process's life an event belongs to: `warm` (start-up), `serve` (traffic) or
`capture` (a graph being recorded).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_phase: ContextVar[str] = ContextVar("jitwarm_phase", default="serve")


# The phase of the current context; `serve` unless said otherwise, so that nothing hides behind a
# missing word. Counted launches ask for it, so it is no function of ours (80 ns against 30).
current_phase = _phase.get


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Run a block in a phase. Pool threads take part only with a copied context.

    Restored by value: a generator may be closed in another context than it was entered in, where a
    token is refused. That context keeps its own phase.
    """
    outer = _phase.get()
    _phase.set(name)
    try:
        yield
    finally:
        if _phase.get() == name:
            _phase.set(outer)


def phase_of_event() -> str:
    """The phase of what happens right now: `capture` too where nobody said so, but this thread's
    CUDA stream is recording a graph, at start-up as well as later.

    A graph that another thread records is not noticed. Asks CUDA, so it is for events, never for
    launches that find their binary.
    """
    return "capture" if is_capturing() else _phase.get()


def is_capturing() -> bool:
    """Whether this thread's current CUDA stream is recording a graph.

    Starts nothing: False where torch is not imported or its CUDA is not initialised. The question
    itself is allowed while a graph is recorded.
    """
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # None as well while torch is half imported
    try:
        return bool(cuda and cuda.is_initialized() and cuda.is_current_stream_capturing())
    except (AttributeError, RuntimeError):  # watching must not break a launch
        return False
