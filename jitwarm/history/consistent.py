"""A result that says one number and lists another: somebody has edited it, or two were mixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from jitwarm.amounts import counted
from jitwarm.errors import StoredFileError
from jitwarm.record import CoverageRecord, Result


def check_consistent(path: Path, result: Result) -> None:
    """Raise `StoredFileError` for a count that is not the number of what is listed."""
    for problem in _problems(result):
        raise StoredFileError(path, f"contradicts itself: {problem}")


def _problems(result: Result) -> Iterator[str]:
    for coverage in (result.coverage, *result.rank_coverage):
        yield from (f"rank {coverage.rank} has {one}" for one in _uncovered(coverage))
    rank, missed = result.coverage.rank, Counter(miss.kernel for miss in result.coverage.misses)
    for kernel in result.kernels:
        listed = missed[kernel.kernel]
        if kernel.missed != listed:
            yield f"{kernel.kernel} has {kernel.missed} missed keys, rank {rank} lists {listed}"


def _uncovered(own: CoverageRecord) -> Iterator[str]:
    if own.missed != len(own.misses):
        yield f"{own.missed} missed keys and lists {len(own.misses)}"
    if own.unreached != len(own.unreached_keys):
        yield f"{counted(own.unreached, 'key')} never used and lists {len(own.unreached_keys)}"
    if own.needed != own.hit + own.missed:
        yield f"{own.needed} needed keys, {own.hit} of them ready and {own.missed} missed"
