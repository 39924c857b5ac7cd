"""The kernels of DeepSeek-V4 that admit decode context parallelism."""

from __future__ import annotations

from benchmarks.case import run_case
from benchmarks.tracks import Cache, tracked


@tracked("DSv4 kernels, DCP 2")
class DSv4Dcp2:
    """Eleven kernels; both ranks are replayed."""

    def setup_cache(self) -> Cache:
        """Run the case once; every track reads its number from the answer."""
        return run_case("dsv4-dcp.toml", "dcp=2")

    setup_cache.timeout = 1800  # type: ignore[attr-defined]
