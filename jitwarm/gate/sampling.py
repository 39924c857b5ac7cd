"""The real sampler: one start-up of one side, as the process tree that it is.

    python -m jitwarm warm SCENARIO --case ... --json

starts in the side's folder and plans and warms from empty caches. The kernel counts its processor
time and that of everything it started: `wait4` tells it when the process is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from jitwarm import caches, process_group
from jitwarm.amounts import counted
from jitwarm.errors import RunError, SideFailed
from jitwarm.gate import witness
from jitwarm.gate.pairs import Sample, Side
from jitwarm.gate.places import Layout
from jitwarm.gate.worktrees import environment
from jitwarm.record import DeviceRecord

# Lines of a failed process that are told.
TOLD = 3


class _Key(msgspec.Struct):
    kernel: str
    backend_key: str


class _Warm(msgspec.Struct):
    seconds: float
    cpu_seconds: float


class _Record(msgspec.Struct):
    """What is read of a record that `jitwarm warm --json` prints, by any version of it."""

    case: dict[str, object]
    device: DeviceRecord
    versions: dict[str, str]
    keys: list[_Key]
    enumeration_s: float
    warm: _Warm


class _Failed(msgspec.Struct):
    kernel: str
    error: str


class _Failures(msgspec.Struct):
    failed: list[_Failed]


class Usage(msgspec.Struct, frozen=True):
    """What a finished process tree cost, in seconds, and its exit status."""

    status: int
    cpu_s: float
    wall_s: float


class Request(msgspec.Struct, frozen=True):
    """What a sampler runs: the scenario (as seen from `layout.here`) and further arguments of
    `jitwarm warm`, in the folders of the sides; `scratch` is for its files.
    """

    roots: dict[Side, Path]
    layout: Layout
    scenario: str
    arguments: tuple[str, ...]
    scratch: Path


class ProcessSampler:
    """Runs `jitwarm warm` with the same arguments on each side, in a fresh process and folder."""

    def __init__(self, request: Request) -> None:
        """What is run on both sides, and where."""
        self._roots, self._layout, self._scratch = request.roots, request.layout, request.scratch
        self._bytecode = request.scratch / "bytecode"
        name = request.scenario
        # As an argument that is no option, whatever it is called.
        shown = name if name.startswith(os.pardir) else f"./{name}"
        self._arguments = (shown, "--json", *request.arguments)

    def sample(self, side: Side, index: int) -> Sample:
        """One run, from empty caches. One with a negative index is watched for what it imports."""
        folder = self._scratch / f"run{index}"
        folder.mkdir()
        try:
            return self._run(side, folder, watched=index < 0)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, side: Side, folder: Path, *, watched: bool) -> Sample:
        root = self._roots[side]
        variables = environment() | _empty_caches(folder / "caches")
        for name in ("tmp", "watched"):
            (folder / name).mkdir()
        if watched:
            shutil.copy(witness.__file__, folder / "watched" / f"{witness.import_name}.py")
        extra = [str(folder / "watched")] if watched else []
        variables["PYTHONPATH"] = self._layout.python_path(root, extra)
        # A killed process leaves its own scratch folders here, where they are removed.
        variables["TMPDIR"] = str(folder / "tmp")
        # Compiled modules of both sides in one folder of ours, so that neither has them from
        # before. jitwarm's own cost 0.13 s of 2.65 s: that is half of a slowdown of 10 %, hidden
        # where only the working tree has them because PYTHONDONTWRITEBYTECODE is set.
        variables["PYTHONPYCACHEPREFIX"] = str(self._bytecode)
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        command = (sys.executable, "-m", "jitwarm", "warm", *self._arguments)
        place = self._layout.folder(root)
        place.mkdir(parents=True, exist_ok=True)
        usage = run_counted(command, place, variables, folder / "out", folder / "err")
        said = (folder / "err").read_text(errors="replace")
        output = (folder / "out").read_bytes()
        if usage.status:
            raise SideFailed(side, _problem(usage.status, said, output))
        record = _record(side, output)
        keys: dict[str, list[str]] = {}
        for key in record.keys:
            keys.setdefault(key.kernel, []).append(key.backend_key)
        return Sample(
            cpu_s=usage.cpu_s,
            wall_s=usage.wall_s,
            enumeration_s=record.enumeration_s,
            warm_s=record.warm.seconds,
            warm_cpu_s=record.warm.cpu_seconds,
            device=record.device,
            versions=record.versions,
            keys={kernel: tuple(sorted(set(own))) for kernel, own in keys.items()},
            case=record.case,
            modules=_modules(folder / "watched"),
        )


def run_counted(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], out: Path, err: Path
) -> Usage:
    """Run a command to its end in `folder`, its output in the files `out` and `err`.

    Whatever ends this early, Ctrl-C above all, kills the command and everything it has started.
    Raises `RunError` if something of it cannot be killed: it would disturb what is measured next.
    """
    with out.open("wb") as stdout, err.open("wb") as stderr:
        start = time.perf_counter()
        # A group of its own: it can be killed whole, and Ctrl-C is for us to deal with.
        with process_group.running(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=stdout,
            stderr=stderr,
        ) as process:  # fmt: skip
            process_group.wait_for(process)
            wall_s = time.perf_counter() - start
            # What it has left running would take processor time from the next run.
            left = process_group.end(process)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if left:
        still = ", ".join(map(str, left))
        raise RunError(f"{' '.join(command)}: killed, and it still runs (processes {still})")
    return Usage(process.returncode, used.ru_utime + used.ru_stime, wall_s)


def _empty_caches(root: Path) -> dict[str, str]:
    variables = caches.isolated(root)
    found = [path for path in root.rglob("*") if not path.is_dir()]
    if found:
        files = counted(len(found), "file")
        raise RunError(f"caches are not empty before a run: {files} below {root}")
    return variables


def _record(side: Side, output: bytes) -> _Record:
    lines = output.splitlines()
    if len(lines) != 1:
        raise SideFailed(side, f"jitwarm warm --json printed {len(lines)} lines, not one record")
    try:
        return msgspec.json.decode(lines[0], type=_Record)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SideFailed(side, f"jitwarm warm --json printed another record: {error}") from None


def _problem(status: int, said: str, output: bytes) -> str:
    """What a failed process said, in one line: keys that failed are in its record."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line.removeprefix("jitwarm: ") for line in lines if line.startswith("jitwarm: ")]
    with contextlib.suppress(msgspec.DecodeError):
        failed = msgspec.json.decode(output, type=_Failures).failed
        told += [f"{one.kernel}: {' '.join(one.error.split())}" for one in failed]
    text = "; ".join(dict.fromkeys((told or lines)[-TOLD:])) or "no word why"
    how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"jitwarm warm {how}: {text}"


def _modules(folder: Path) -> tuple[str, ...]:
    found: set[str] = set()
    for path in folder.glob("*.json"):
        found.update(json.loads(path.read_text()))
    return tuple(sorted(found))
