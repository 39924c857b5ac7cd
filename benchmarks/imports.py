"""What `import jitwarm` costs: every process of an engine pays it, warmed or not."""

from __future__ import annotations

from benchmarks.commit import check_commit


class ImportTime:
    """Each sample in a fresh interpreter, whose own start is not counted."""

    version = "1"
    timeout = 120
    # One import is one sample. Never 6: asv cannot tell 6 samples from 6 (docs/asv.md).
    number, repeat, rounds, warmup_time = 1, 10, 1, 0

    def setup_cache(self) -> None:
        """Nothing is prepared; the wrong commit is refused."""
        check_commit()

    def timeraw_import_jitwarm(self) -> str:
        """No torch, no Triton."""
        return "import jitwarm"

    timeraw_import_jitwarm.pretty_name = "import jitwarm"  # type: ignore[attr-defined]
