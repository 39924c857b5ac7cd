"""Results beside the reviewed expectations of their cases: counts only, the gate is `check`."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jitwarm.amounts import counted
from jitwarm.errors import StoredFileError
from jitwarm.gate.counts import CasePlan
from jitwarm.gate.expectation import case_name, plan_of, read
from jitwarm.gate.ranks import ranks_text
from jitwarm.history.cases import CaseHistory, axes_of
from jitwarm.history.content import is_folder
from jitwarm.record import Result


@dataclass(frozen=True, slots=True)
class Expected:
    """What was expected of a case: the file, how many kernels and ranks were compared, and what
    differs, a line each. No file where nobody has reviewed the case.
    """

    file: str = ""
    kernels: int = 0
    ranks: int = 0
    differences: tuple[str, ...] = ()


def compare_all(
    histories: Iterable[CaseHistory], folder: Path
) -> tuple[list[Expected], list[StoredFileError]]:
    """The newest result of each case against its file in `folder`, and the files that cannot be
    read, whose cases have no expectation then.
    """
    found: list[Expected] = []
    problems: dict[str, StoredFileError] = {}
    try:
        if not is_folder(folder):
            return [], [StoredFileError(folder, "there is no such folder of expectations")]
    except StoredFileError as error:
        return [], [error]
    for history in histories:
        path = folder / f"{history.scenario}.json"
        expected = Expected()
        try:
            expected = _compare(history, path) if _is_there(path) else expected
        except StoredFileError as error:
            problems[str(path)] = error
        found.append(expected)
    return found, list(problems.values())


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # so nobody can have written it
            return False
        raise StoredFileError(path, f"cannot be read: {error.strerror}") from error


def _compare(history: CaseHistory, path: Path) -> Expected:
    result = history.latest.result
    axes = " ".join(f"{name}={value}" for name, value in axes_of(result).items())
    rows = read(path, history.scenario).cases.get(case_name(axes))
    if rows is None:
        return Expected()
    plan = plan_of(rows)
    differences = tuple(_differences(result, plan))
    return Expected(str(path), len(result.kernels), len(result.rank_plans), differences)


def _differences(result: Result, plan: CasePlan) -> Iterator[str]:
    for own in result.rank_plans:
        expected = plan.ranks.get(own.rank)
        if expected is None:
            yield f"rank {own.rank}: not expected"
        elif (own.keys, own.backend_keys) != (expected.keys, expected.backend_keys):
            yield (
                f"rank {own.rank}: {counted(own.keys, 'key')}, "
                f"{counted(own.backend_keys, 'binary', 'binaries')}; expected "
                f"{expected.keys} and {expected.backend_keys}"
            )
        elif own.digest != expected.digest:
            yield f"rank {own.rank}: as many binaries as expected, and not the same"
    absent = plan.ranks.keys() - {own.rank for own in result.rank_plans}
    if absent:
        yield f"{ranks_text(absent)}: expected, and not there"
    rank = result.coverage.rank
    here = plan.ranks.get(rank)
    if here is not None and here.layers != result.funnel.layers:
        yield f"rank {rank}: {counted(result.funnel.layers, 'layer')} (expected {here.layers})"
    expected_here = {
        name: kernel.counts[rank] for name, kernel in plan.kernels.items() if rank in kernel.counts
    }
    for kernel in result.kernels:
        counts = expected_here.pop(kernel.kernel, None)
        if counts is None:
            yield f"{kernel.kernel}: not expected"
            continue
        found = [
            f"{getattr(kernel, name)} {name.replace('_', ' ')} (expected {count})"
            for name, count in msgspec.structs.asdict(counts).items()
            if getattr(kernel, name) != count
        ]
        if found:
            yield f"{kernel.kernel}: {', '.join(found)}"
    for name in expected_here:
        yield f"{name}: expected, and not there"
