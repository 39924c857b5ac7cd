"""The process that runs fault files: it imports the compilers once and forks for each file, and
again for each process of a fault, so that none finds what another left in memory.

`python -m jitwarm.faults.server JOB REPLY`, started by `jitwarm.faults.run`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from jitwarm import atomic, caches, device
from jitwarm.errors import FaultError
from jitwarm.faults import compiler
from jitwarm.faults.examine import DEVICE, Examined, examine
from jitwarm.faults.files import load
from jitwarm.faults.form import Fault
from jitwarm.faults.judge import judged
from jitwarm.faults.orders import has_keys, key_table
from jitwarm.faults.results import FaultResult, FaultsJob, FaultsReply, FileResult
from jitwarm.findings import Finding
from jitwarm.forks import Ended, run_each
from jitwarm.proof.compare import KeyTable, table_findings


def main(job_path: str, reply_path: str) -> None:
    """Run the job and write the reply."""
    job = msgspec.json.decode(Path(job_path).read_bytes(), type=FaultsJob)
    _prepay(compiles=not job.only_keys)
    one_file = tables_of if job.only_keys else run_file
    ended = run_each(
        [partial(_encoded, one_file, path, job.limit_s) for path in job.paths],
        at_once=job.jobs,
        limit_s=job.limit_s * 4,
    )
    files = [
        FileResult(path, problem=f"{path}: {one.problem}") if one.problem else _decoded(path, one)
        for path, one in zip(job.paths, ended, strict=True)
    ]
    atomic.write_bytes(Path(reply_path), msgspec.json.encode(FaultsReply(files)))


def run_file(path: str, limit_s: float) -> FileResult:
    """Load one file in this process and run its faults, each in processes of its own."""
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        faults = load(Path(path))
    except FaultError as error:
        return FileResult(path, problem=str(error))
    return FileResult(path, [_sound(run_fault(name, fault, limit_s)) for name, fault in faults])


def _decoded(path: str, ended: Ended) -> FileResult:
    """What a file's process answered; a problem where that has values of a wrong type."""
    try:
        return msgspec.json.decode(ended.answer, type=FileResult)
    except msgspec.DecodeError as error:
        return FileResult(path, problem=f"{path}: its results cannot be read: {error}")


def _sound(result: FaultResult) -> FaultResult:
    """The result, or a broken one in its place where another process could not read it."""
    try:
        msgspec.json.decode(msgspec.json.encode(result), type=FaultResult)
    except (msgspec.DecodeError, TypeError) as error:
        return FaultResult(
            result.name, str(result.title), [], problem=f"it has a value of a wrong type: {error}"
        )
    return result


def run_fault(name: str, fault: Fault, limit_s: float) -> FaultResult:
    """Run one fault in forked processes, with caches of their own."""
    result = FaultResult(name, fault.title, list(fault.expected))
    with tempfile.TemporaryDirectory(prefix="jitwarm-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        # First what only evaluates keys, both ways, then the processes one after the other.
        functions: list[Callable[[], bytes]] = []
        if has_keys(fault):
            there_and_back = (partial(key_table, fault, backwards=way) for way in (False, True))
            functions = [partial(_encoded, one) for one in there_and_back]
        tables = len(functions)
        ranks = range(1 if fault.store is not None else fault.processes)
        functions += [partial(_encoded, _process, fault, rank, folder) for rank in ranks]
        ended = run_each(functions, at_once=1, limit_s=limit_s)
        for number, one in enumerate(ended):
            if one.problem and (folder / f"warming{number - tables}").exists():
                ended[number] = Ended(_encoded(_dead, fault, one.problem))
            elif one.problem:
                return replace(result, problem=one.problem, trace=one.trace)
        processes = [msgspec.json.decode(one.answer, type=Examined) for one in ended[tables:]]
        found = judged(fault, processes, folder)
    if not tables:
        return replace(result, found=found)
    there, back = (msgspec.json.decode(one.answer, type=KeyTable) for one in ended[:tables])
    if not any(one.kind == "KEY-UNSTABLE" for one in found):
        found += table_findings(there, back, "backwards")
    return replace(result, found=found, table=there)


def tables_of(path: str, limit_s: float) -> FileResult:
    """The keys alone of the faults in a file, as this interpreter evaluates them: from a copy in
    another folder, so that a key which holds a path is another one.
    """
    sys.path.insert(0, str(Path(path).resolve().parent))
    results = []
    with tempfile.TemporaryDirectory(prefix="jitwarm-", ignore_cleanup_errors=True) as folder:
        copy = shutil.copy(path, folder)
        for name, fault in load(Path(copy)):
            if has_keys(fault):
                function = partial(_encoded, key_table, fault)
                (ended,) = run_each([function], at_once=1, limit_s=limit_s)
                if not ended.problem:
                    table = msgspec.json.decode(ended.answer, type=KeyTable)
                    results.append(FaultResult(name, fault.title, [], table=table))
    return FileResult(path, results)


def _encoded(function: Callable[..., Any], *arguments: Any) -> bytes:
    return msgspec.json.encode(function(*arguments))


def _process(fault: Fault, rank: int, folder: Path) -> Examined:
    own = folder if fault.shares_caches else folder / f"rank{rank}"
    os.environ.update(caches.isolated(own / "caches"))
    compiler.keep_in(own / "stub")
    return examine(fault, rank, warming=folder / f"warming{rank}")


def _dead(fault: Fault, problem: str) -> Examined:
    """A process that its warm-up has ended, and with it start-up."""
    name = getattr(fault.kernel, "kernel_name", None) or getattr(fault.kernel, "__name__", "")
    finding = Finding(
        "WARM-CRASH",
        str(name),
        f"the warm-up ended its process: {problem.removeprefix('its process ')}",
        seen=problem.removeprefix("its process ended with ").removesuffix(" and no answer"),
        advice="compile in a child process, so that a crash of the compiler costs one key",
    )
    return Examined([finding])


def _prepay(*, compiles: bool) -> None:
    """Import and touch what every fault needs, before the first fork. Starts no thread."""
    import torch  # noqa: F401 - most faults import it, each in its own process
    from triton.runtime import cache

    from jitwarm.backends.triton.probe import bind_probe

    # Triton 3.9 says once that a default will change.
    warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION")
    device.activate(*DEVICE)
    bind_probe()
    if compiles:
        cache.triton_key()  # half a second of hashing its own library, kept for the process


if __name__ == "__main__":
    main(*sys.argv[1:])
