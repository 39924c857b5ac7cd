"""What became of faults: values that one process hands to another."""

from __future__ import annotations

import msgspec

from jitwarm.faults.form import Expected
from jitwarm.faults.match import Difference, compare
from jitwarm.findings import Finding
from jitwarm.proof.compare import KeyTable


class FaultResult(msgspec.Struct, frozen=True):
    """One fault: what was expected and found. `table` holds the keys of its launches.

    `problem` is why it could not be run to its end, in one line, and `trace` where.
    """

    name: str
    title: str
    expected: list[Expected]
    found: list[Finding] = []
    problem: str = ""
    trace: str = ""
    table: KeyTable = KeyTable("")

    @property
    def difference(self) -> Difference:
        """How the findings differ from what was expected."""
        return compare(self.expected, self.found)

    @property
    def verdict(self) -> str:
        """`ok`, `differs` or `broken`."""
        return "broken" if self.problem else "differs" if self.difference else "ok"


class FileResult(msgspec.Struct, frozen=True):
    """The faults of one file; `problem` is why there are none."""

    path: str
    faults: list[FaultResult] = []
    problem: str = ""

    @property
    def lacks(self) -> str:
        """What a file should have and has not: a fault, or a twin that expects nothing."""
        if self.problem:
            return ""
        if all(fault.expected for fault in self.faults):
            return "no twin: add the same scenario without its mistake, which expects no finding"
        if not any(fault.expected for fault in self.faults):
            return "no fault: every Fault here expects no finding"
        return ""


class FaultsJob(msgspec.Struct, frozen=True):
    """Which files a process runs, how many at once, and how long one process may take (seconds).

    With `only_keys` nothing is judged: the keys of the launches are asked for.
    """

    paths: list[str]
    jobs: int
    limit_s: float
    only_keys: bool = False


class FaultsReply(msgspec.Struct, frozen=True):
    """The files of a job, in its order."""

    files: list[FileResult]
