"""The one record of something a kernel runtime did that takes time: an event."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

Kind = Literal["compile", "disk_hit", "load", "tune", "trace", "failed", "skipped", "refused"]
KINDS: tuple[str, ...] = get_args(Kind)


class Event(msgspec.Struct, frozen=True):
    """One event.

    `kind`: `compile` the compiler ran, `disk_hit` the binary came from the disk cache, `load` a
    launcher was built and a module loaded, `tune` configurations were timed against each other
    (its `ms` holds the compiles and loads meanwhile, which are events too), `trace` a CuTe DSL
    function was traced, and its binary was in memory; `failed` a compile error, `skipped` a user's
    hook stopped it, `refused` monitor mode `error` stopped it. `ms` is wall time, `stages` the
    compiler's own stage times in ms. `key` is the canonical backend key, `key_id` its hash. `phase`
    is `warm`, `serve` or `capture`; `step` counts steps of traffic (-1 before the first).

    `serving` says that start-up was over by then (`Monitor.begin_serving`), whatever the phase.

    `site` is the caller as `module.function:line` and `place` as `file:line`: the innermost frame
    outside the compilers and jitwarm. `values` are the whole numbers that a missed Triton launch
    passed, by argument; compile-time values are in the key. `configs` is how many configurations a
    `tune` timed, `in_tuning` whether the event happened while one was under way.
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
    place: str = ""
    values: dict[str, int] = {}
    configs: int = 0
    in_tuning: bool = False
    serving: bool = False

    @property
    def late(self) -> bool:
        """Whether it came too late: outside of a warm-up, or in one that ran after start-up."""
        return self.serving or self.phase != "warm"
