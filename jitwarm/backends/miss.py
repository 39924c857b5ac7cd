"""One in-process miss: a launch (or a warm-up) whose binary this process does not have yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from jitwarm.observe.events import Kind

# A launch's options by name, as a compiler's in-process key has them: in order, values by `repr`.
Spelling = tuple[tuple[str, str], ...]

_local = threading.local()


@dataclass(slots=True)
class Miss:
    """One in-process miss while it is being served.

    `kernel` is the kernel's import path, `text` its canonical backend key, `in_process` the string
    by which the backend itself knows the key in this process, where it has one. `kind` is None
    until the backend says `compile` or `disk_hit`; `failed` and `skipped` (a user's hook
    stopped it) are the other ends. It is `tune` from the start where configurations are about to be
    timed; `text` is then what the choice is for. `stages` are milliseconds a compiler stage, `ms`
    is the whole. `values` are the whole numbers among the launch's run-time arguments, where the
    compiler's key has only their classes. `spelling` are the launch's options as written, where
    that is a part of `in_process`.
    """

    kernel: str
    text: str
    in_process: str = ""
    kind: Kind | None = None
    stages: dict[str, float] = field(default_factory=dict)
    ms: float = 0.0
    values: dict[str, int] = field(default_factory=dict)
    spelling: Spelling = ()


@contextmanager
def serving(miss: Miss) -> Iterator[Miss]:
    """Time `miss` while this thread serves it with a CuTe DSL compile.

    The compiler's hooks add their stages to it and tell no event of their own; what else is
    compiled meanwhile belongs to it too. Sets `kind` (`compile` unless it is set) and `ms`.
    """
    outer = being_served()
    _local.miss = miss
    start = time.perf_counter()
    try:
        yield miss
        miss.kind = miss.kind or "compile"
    except BaseException:
        miss.kind = "failed"
        raise
    finally:
        miss.ms = (time.perf_counter() - start) * 1e3
        _local.miss = outer


def being_served() -> Miss | None:
    """The miss that this thread serves now, in `serving`."""
    return getattr(_local, "miss", None)
