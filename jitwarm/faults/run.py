"""`jitwarm faults FILE...`: run fault files and print one table."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jitwarm import atomic, caches, process_group
from jitwarm.amounts import counted
from jitwarm.commands.output import note, say, say_json
from jitwarm.device import check_compiles
from jitwarm.errors import WorkerError
from jitwarm.faults.files import find
from jitwarm.faults.form import Expected
from jitwarm.faults.results import FaultResult, FaultsJob, FaultsReply, FileResult
from jitwarm.findings import Finding
from jitwarm.proof.compare import table_findings
from jitwarm.report.table import table

# Seconds that one process of one fault may take: a hundred times what one takes.
LIMIT_S = 120.0
OK, DIFFERS, BROKEN = 0, 1, 2
# What a fault file prints is a note: our stdout is for the table alone.
STDERR = 2
# Findings of one kind and field that are spelt out.
SHOWN = 3
# A process that forks must have no second thread.
_SERVER_ENV = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SERVER = (sys.executable, "-m", "jitwarm.faults.server")


def run_faults(
    paths: Sequence[str | Path], *, jobs: int | None = None, as_json: bool = False
) -> int:
    """Run the fault files of `paths` (folders stand for the files in them), print the table on
    stdout and what differs on stderr.

    Returns 0 if every finding that was expected came and no other, 1 if not, 2 if a file or a
    fault could not be run. Raises `FaultError` where there is nothing to run, `InterpretedError`
    where Triton compiles nothing.
    """
    check_compiles()
    files = examined(find(paths), jobs=jobs)
    if as_json:
        for file in files:
            say_json(file)
    else:
        say(faults_table(files))
        for line in details(files):
            note(line)
    return exit_code(files)


def examined(
    paths: Sequence[str | Path], *, jobs: int | None = None, limit_s: float = LIMIT_S
) -> list[FileResult]:
    """Run the files in a fresh interpreter on the stub device, with caches of their own, and
    evaluate their keys in a second one with another hash seed.

    Raises `WorkerError` if the first of them dies.
    """
    # Two of them are busy with compiles; more than eight find no memory on small machines.
    jobs = jobs or min(os.cpu_count() or 1, 8)
    job = FaultsJob([*map(str, paths)], jobs, limit_s)
    with contextlib.ExitStack() as ends:
        first = ends.enter_context(_server(job, "0"))
        second = ends.enter_context(_server(msgspec.structs.replace(job, only_keys=True), "1"))
        files = first.answer()
        others = {file.path: file for file in second.answer() or ()}
    if files is None:
        raise WorkerError("the process of the faults ended without an answer")
    return [_with_other_seed(file, others.get(file.path)) for file in files]


@dataclass(frozen=True, slots=True)
class _Server:
    """A fresh interpreter that runs a job."""

    process: subprocess.Popen[bytes]
    reply: Path

    def answer(self) -> list[FileResult] | None:
        """Wait for its reply; None if it died without."""
        process_group.wait_for(self.process)
        if not self.reply.exists():
            return None
        return msgspec.json.decode(self.reply.read_bytes(), type=FaultsReply).files


@contextlib.contextmanager
def _server(job: FaultsJob, seed: str) -> Iterator[_Server]:
    """A server, and everything that it forks: they end with the block, and so does their folder.

    `seed` is that of Python's hashes.
    """
    # What cannot be removed must not cost a result.
    with tempfile.TemporaryDirectory(prefix="jitwarm-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        asked, reply = folder / "job.json", folder / "reply.json"
        atomic.write_bytes(asked, msgspec.json.encode(job))
        own = {"PYTHONHASHSEED": seed, "TMPDIR": scratch}
        with process_group.running(
            [*SERVER, str(asked), str(reply)],
            env=os.environ | caches.isolated(folder / "caches") | _SERVER_ENV | own,
            stdin=subprocess.DEVNULL,
            stdout=STDERR,
        ) as process:
            yield _Server(process, reply)
            process_group.end(process)
            process.wait()


def _with_other_seed(file: FileResult, other: FileResult | None) -> FileResult:
    """Add what the second interpreter evaluated otherwise, where the first found nothing of it."""
    tables = {fault.name: fault.table for fault in (other.faults if other is not None else ())}
    faults = []
    for fault in file.faults:
        found = list(fault.found)
        table = tables.get(fault.name)
        if table is not None and not any(one.kind == "KEY-UNSTABLE" for one in found):
            how = "in another process (hash seed, folder, addresses)"
            found += table_findings(fault.table, table, how)
        faults.append(msgspec.structs.replace(fault, found=found))
    return msgspec.structs.replace(file, faults=faults)


def faults_table(files: Iterable[FileResult]) -> str:
    """A row a fault: file, name, what was expected, what was found, the verdict."""
    rows: list[tuple[str, ...]] = []
    counts: Counter[str] = Counter()
    for file in files:
        name = Path(file.path).name
        if file.problem:
            rows.append((name, "-", "-", "-", "broken"))
            counts["broken"] += 1
        for fault in file.faults:
            verdict = fault.verdict if not file.lacks else f"{fault.verdict}, {_short(file)}"
            rows.append((name, fault.name, _expected(fault.expected), _kinds(fault.found), verdict))
            counts[fault.verdict] += 1
    text = table(("file", "fault", "expected", "found", "verdict"), rows, left=5)
    total = ", ".join(f"{counts[name]} {name}" for name in ("ok", "differs", "broken"))
    return f"{text}\n{counted(sum(counts.values()), 'fault')}: {total}"


def details(files: Iterable[FileResult]) -> Iterable[str]:
    """What differs, is broken or is missing, a line each."""
    for file in files:
        if file.problem:
            yield f"jitwarm: {file.problem}"
        if file.lacks:
            yield f"jitwarm: {file.path}: {file.lacks}"
        for fault in file.faults:
            yield from _details(f"{file.path} {fault.name}", fault)


def exit_code(files: Sequence[FileResult]) -> int:
    """0, 1 where findings differ, 2 where something could not be run."""
    verdicts = {fault.verdict for file in files for fault in file.faults}
    if "broken" in verdicts or any(file.problem for file in files):
        return BROKEN
    return DIFFERS if "differs" in verdicts else OK


def _details(where: str, fault: FaultResult) -> Iterable[str]:
    if fault.problem:
        yield f"{where}: {fault.problem}"
        return
    difference = fault.difference
    for text in difference.missing:
        yield f"{where}: expected, and not found: {text}"
    for alike in _alike(difference.unexpected):
        for finding in alike[:SHOWN]:
            yield f"{where}: found, and not expected: {finding_text(finding)}"
        if len(alike) > SHOWN:
            more = len(alike) - SHOWN
            yield f"{where}: and {more} more of {_kind(alike[0].kind, alike[0].field)}"


def finding_text(finding: Finding) -> str:
    """One finding in a line."""
    named = (("field", finding.field), ("warmed", finding.warmed), ("seen", finding.seen))
    inner = ", ".join(f"{name}={value!r}" for name, value in named if value)
    return f"{finding.kind}({inner}) {finding.kernel}: {finding.message}"


def _alike(findings: Iterable[Finding]) -> Iterable[list[Finding]]:
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.field), []).append(finding)
    return groups.values()


def _kinds(findings: Iterable[Finding]) -> str:
    return _counted(Counter(_kind(one.kind, one.field) for one in findings))


def _expected(expected: Iterable[Expected]) -> str:
    counts: Counter[str] = Counter()
    for one in expected:
        counts[_kind(one.kind, one.field)] += one.count or 1
    return _counted(counts)


def _kind(kind: str, field: str | None) -> str:
    return f"{kind}({field})" if field else kind


def _counted(counts: Counter[str]) -> str:
    return "; ".join(f"{n} {text}" if n > 1 else text for text, n in counts.items()) or "-"


def _short(file: FileResult) -> str:
    return file.lacks.partition(":")[0]
