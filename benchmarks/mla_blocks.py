"""DeepSeek-V3.2 with blocks of 128 tokens."""

from __future__ import annotations

from benchmarks.case import run_case
from benchmarks.tracks import Cache, tracked


@tracked("MLA, blocks of 128")
class MLABlocks:
    """The width of a block table's row follows the block size."""

    def setup_cache(self) -> Cache:
        """Run the case once; every track reads its number from the answer."""
        return run_case("mla-blocks.toml", "block=128")

    setup_cache.timeout = 1800  # type: ignore[attr-defined]
