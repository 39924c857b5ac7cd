"""Inkling: attention of flash-attention 4 with a relative bias."""

from __future__ import annotations

from benchmarks.case import run_case
from benchmarks.needs import FA4
from benchmarks.tracks import Cache, tracked


@tracked("Inkling, TP 8")
class Inkling:
    """Four attention binaries, and the helpers of flash-attention 4."""

    def setup_cache(self) -> Cache:
        """Run the case once; every track reads its number from the answer."""
        return run_case("inkling.toml", "tp=8", needs=(FA4,))

    setup_cache.timeout = 3600  # type: ignore[attr-defined]
