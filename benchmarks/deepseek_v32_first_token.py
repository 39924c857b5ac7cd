"""DeepSeek-V3.2 from token ids to a token id, on a GPU."""

from __future__ import annotations

from benchmarks.case import run_case
from benchmarks.needs import FA4, GPU
from benchmarks.tracks import Cache, tracked


@tracked("DeepSeek-V3.2 with tokens", first="first token")
class DeepSeekV32FirstToken:
    """Projections, selection and attention run too; a stub device emits no token."""

    def setup_cache(self) -> Cache:
        """Run the case once; every track reads its number from the answer."""
        return run_case("deepseek-v3.2-first-token.toml", needs=(GPU, FA4))

    setup_cache.timeout = 3600  # type: ignore[attr-defined]
