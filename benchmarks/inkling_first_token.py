"""Inkling from token ids to a token id, on a GPU."""

from __future__ import annotations

from benchmarks.case import run_case
from benchmarks.needs import FA4, GPU
from benchmarks.tracks import Cache, tracked


@tracked("Inkling with tokens", first="first token")
class InklingFirstToken:
    """Needs 40 GB; a stub device emits no token."""

    def setup_cache(self) -> Cache:
        """Run the case once; every track reads its number from the answer."""
        return run_case("inkling-first-token.toml", needs=(GPU, FA4))

    setup_cache.timeout = 3600  # type: ignore[attr-defined]
