"""Which part of a process's life an event belongs to: `warm` (start-up), `serve` (traffic) or
`capture` (a graph being recorded).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_phase: ContextVar[str] = ContextVar("jitwarm_phase", default="serve")


def current_phase() -> str:
    """The phase of the current context; `serve` unless said otherwise, so that nothing hides behind
    a missing word.
    """
    return _phase.get()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Run a block in a phase. Pool threads take part only with a copied context."""
    token = _phase.set(name)
    try:
        yield
    finally:
        _phase.reset(token)
