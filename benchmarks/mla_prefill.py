"""Dense MLA prefill of flash-attention 4."""

from __future__ import annotations

from benchmarks.case import run_case
from benchmarks.needs import FA4
from benchmarks.tracks import Cache, tracked


@tracked("MLA prefill, FA4")
class MLAPrefill:
    """Decodes launch nothing here."""

    def setup_cache(self) -> Cache:
        """Run the case once; every track reads its number from the answer."""
        return run_case("mla-prefill.toml", "head_dims=128-64-128", needs=(FA4,))

    setup_cache.timeout = 3600  # type: ignore[attr-defined]
