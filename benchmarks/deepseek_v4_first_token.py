"""DeepSeek-V4 Pro from token ids to a token id, on a GPU."""

from __future__ import annotations

from benchmarks.case import run_case
from benchmarks.needs import GPU
from benchmarks.tracks import Cache, tracked


@tracked("DeepSeek-V4 Pro with tokens", first="first token")
class DeepSeekV4FirstToken:
    """Projections, selection and attention run too; a stub device emits no token."""

    def setup_cache(self) -> Cache:
        """Run the case once; every track reads its number from the answer."""
        return run_case("deepseek-v4-first-token.toml", needs=(GPU,))

    setup_cache.timeout = 3600  # type: ignore[attr-defined]
