"""DeepSeek-V3.2 without decode context parallelism."""

from __future__ import annotations

from benchmarks.case import run_case
from benchmarks.tracks import Cache, tracked


@tracked("DeepSeek-V3.2, DCP 1")
class DeepSeekV32Dcp1:
    """Eight kernels, one rank."""

    def setup_cache(self) -> Cache:
        """Run the case once; every track reads its number from the answer."""
        return run_case("deepseek-v3.2-dcp.toml", "dcp=1")

    setup_cache.timeout = 1800  # type: ignore[attr-defined]
