"""Triton's part of a miss: how Triton served it, and how long each of its stages took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from jitwarm.backends.miss import Miss

Listener = Callable[..., Any]

_local = threading.local()


def serve(miss: Miss, compile_natively: Callable[[], Any]) -> Any:
    """Let Triton compile (or read from disk), and note in `miss` how it ended."""
    outer = getattr(_local, "miss", None)
    _local.miss = miss
    start = time.perf_counter()
    try:
        kernel = compile_natively()
        if kernel is None:
            miss.kind = "skipped"
        else:
            # Triton's asynchronous mode compiles in another thread, where no miss is being served.
            miss.kind = miss.kind or "compile"
            kernel.jitwarm_key = (miss.kernel, miss.text)  # a load names the key it belongs to
    except BaseException:
        miss.kind = "failed"
        raise
    finally:
        miss.ms = (time.perf_counter() - start) * 1e3
        _local.miss = outer
    return kernel


def listener_before(following: Listener | None) -> Listener:
    """A compilation listener that tells a compile from a disk hit and then calls `following`."""

    def listener(
        *, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool
    ) -> None:
        """Note in the miss that is being served how it was served."""
        miss = getattr(_local, "miss", None)
        if miss is not None:
            miss.kind = "disk_hit" if cache_hit else "compile"
            stages = {"init": times.ir_initialization / 1e3}
            stages |= {name: us / 1e3 for name, us in times.lowering_stages}
            miss.stages = {} if cache_hit else stages | {"store": times.store_results / 1e3}
        if following is not None:
            following(
                src=src,
                metadata=metadata,
                metadata_group=metadata_group,
                times=times,
                cache_hit=cache_hit,
            )

    return listener
