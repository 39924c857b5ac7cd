"""DeepSeek-V3.2 under decode context parallelism of 8."""

from __future__ import annotations

from benchmarks.case import run_case
from benchmarks.tracks import Cache, tracked


@tracked("DeepSeek-V3.2, DCP 8")
class DeepSeekV32Dcp8:
    """Eleven kernels; ranks 0, 1 and 7 are replayed."""

    def setup_cache(self) -> Cache:
        """Run the case once; every track reads its number from the answer."""
        return run_case("deepseek-v3.2-dcp.toml", "dcp=8")

    setup_cache.timeout = 1800  # type: ignore[attr-defined]
