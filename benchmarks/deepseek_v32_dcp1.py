"""DeepSeek-V3.2 without decode context parallelism on sm90."""

from __future__ import annotations

from benchmarks.case import run_case
from benchmarks.tracks import tracked


@tracked("DeepSeek-V3.2, DCP 1, sm90")
class DeepSeekV32Dcp1:
    """Seven kernels, one rank."""

    def setup_cache(self) -> dict[str, float]:
        """Run the case once; every track reads its number from the answer."""
        return run_case("deepseek-v3.2-dcp.toml", "dcp=1,arch=sm90", steps=100)

    setup_cache.timeout = 1800  # type: ignore[attr-defined]
