"""The one record of something a kernel runtime did that takes time: an event."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["compile", "disk_hit", "load", "tune", "trace", "failed", "skipped", "refused"]


class Event(msgspec.Struct, frozen=True):
    """One event.

    `kind`: `compile` the compiler ran, `disk_hit` the binary came from the disk cache, `load` a
    launcher was built and a module loaded, `tune` configurations were timed against each other
    (its `ms` holds the compiles and loads meanwhile, which are events too), `trace` a CuTe DSL
    function was traced, and its binary was in memory; `failed` a compile error, `skipped` a user's
    hook stopped it, `refused` monitor mode `error` stopped it. `ms` is wall time, `stages` the
    compiler's own stage times in ms. `key` is the canonical backend key, `key_id` its hash. `phase`
    is `warm`, `serve` or `capture`; `step` counts steps of traffic (-1 before the first).
    """

    kind: Kind
    kernel: str
    key: str
    key_id: str
    ms: float
    stages: dict[str, float]
    phase: str
    step: int
    request: str = ""
    rank: int = 0
    site: str = ""
