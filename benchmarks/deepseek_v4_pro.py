"""DeepSeek-V4 Pro, up to 256 sequences."""

from __future__ import annotations

from benchmarks.case import run_case
from benchmarks.tracks import Cache, tracked


@tracked("DeepSeek-V4 Pro")
class DeepSeekV4Pro:
    """Ten kernels of compressed and windowed caches."""

    def setup_cache(self) -> Cache:
        """Run the case once; every track reads its number from the answer."""
        return run_case("deepseek-v4-pro.toml", "seqs=256")

    setup_cache.timeout = 1800  # type: ignore[attr-defined]
