"""The files of a run are those of one run: on a full disk, and beside another run."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from jitwarm import atomic
from jitwarm.cli import main
from jitwarm.commands import run as command
from jitwarm.harness import Measured
from jitwarm.jobs import Answer
from jitwarm.judge.coverage import Observed
from jitwarm.observe.events import Event
from made_history import base

SCENARIO = 'schema = 1\nname = "{}"\nmodel = "deepseek-v3.2"\n'


def measured(mark):
    """What a run measured that can be told from any other."""
    event = Event("compile", "k", mark, "id", 1.0, {}, "warm", -1)
    result = msgspec.structs.replace(base(), started_at=mark)
    observed = Observed(0, 1, {}, [event])
    answer = Answer("loaded", result.device, {}, {}, 1.0, 1, False, (), observed=observed)
    return result, Measured({"loaded": [answer]}, [], None, [])


def marks(folder):
    """Whose result and whose events lie in a folder; None where there are none."""
    found = []
    for name, field in (("result.json", "started_at"), ("events.jsonl", "key")):
        try:
            text = (folder / name).read_text()
        except FileNotFoundError:
            found.append(None)
        else:
            found.append(re.search(rf'"{field}": ?"(.*?)"', text)[1])
    return tuple(found)


@pytest.fixture
def full(tmp_path, monkeypatch):
    """A run of two scenarios into a folder, on a disk that has no room for the given files."""
    monkeypatch.setattr("jitwarm.device._nvidia_smi", lambda field: None)
    monkeypatch.setattr(command, "measure", lambda *_: measured("new")[1])
    monkeypatch.setattr(command, "assemble", lambda *_: measured("new")[0])
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(SCENARIO.format(name))
    folder = tmp_path / "out" / "a" / "case"
    command._write(folder, *measured("old"))
    replace = atomic._replace

    def run(*refused):
        def scarce(path, data):
            if path.parent == folder and path.name in refused:
                raise OSError(errno.ENOSPC, "No space left on device")
            replace(path, data)

        monkeypatch.setattr(atomic, "_replace", scarce)
        arguments = ["run", str(tmp_path), "--device", "stub", "--out", str(tmp_path / "out")]
        return folder, main(arguments)

    return run


@pytest.mark.parametrize("refused", ["result.json", "events.jsonl"])
def test_a_full_disk_leaves_nothing_stale_and_costs_one_case(full, capsys, refused):
    folder, code = full(refused)
    captured = capsys.readouterr()
    problem = f"{folder / refused} cannot be written: No space left on device"
    assert captured.err == f"jitwarm: {problem} (more in {folder / 'failed.json'})\n"
    assert captured.out.splitlines()[-1] == "2 cases: 1 with misses, 1 failed"
    assert code == 3
    assert [path.name for path in folder.iterdir()] == ["failed.json"]
    assert json.loads((folder / "failed.json").read_bytes())["error"] == problem
    assert marks(folder.parents[1] / "b" / "case") == ("new", "new")


def test_a_disk_without_room_for_the_error_costs_one_case_too(full, capsys):
    folder, code = full("result.json", "failed.json")
    captured = capsys.readouterr()
    first, second = (
        f"{folder / name} cannot be written: No space left on device"
        for name in ("result.json", "failed.json")
    )
    assert captured.err == f"jitwarm: {first} ({second})\n"
    assert captured.out.splitlines()[-1] == "2 cases: 1 with misses, 1 failed"
    assert code == 3
    assert list(folder.iterdir()) == []


WRITER = """
import sys, time
from pathlib import Path
from jitwarm import atomic
from jitwarm.commands.run import _write
from test_run_files import measured
write = atomic.write_bytes
def slowly(*file):
    write(*file)
    time.sleep(0.002)
atomic.write_bytes = slowly
ready = [measured(f"{sys.argv[2]} {number}") for number in range(50)]
print("ready", flush=True)
sys.stdin.readline()
for one in ready:
    _write(Path(sys.argv[1]), *one)
"""


def test_two_runs_at_once_never_mix(tmp_path):
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    folder = tmp_path / "case"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), name],
            cwd=Path(__file__).parents[1],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    seen = set()
    while any(writer.poll() is None for writer in writers):
        result, events = marks(folder)
        if result is not None and marks(folder)[0] == result:  # nobody wrote meanwhile
            seen.add((result, events))
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    seen.add(marks(folder))
    assert all(result == events for result, events in seen)
    assert marks(folder)[0].endswith(" 49")
