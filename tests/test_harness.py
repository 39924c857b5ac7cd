"""The harness and its processes: what is kept when one of them fails, what is left when it ends.

Most measuring processes here are a stand-in that answers at once; what is real is the process.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from jitwarm import harness, process_group
from jitwarm.errors import ArmFailed, NotWrittenError
from jitwarm.harness import Settings, measure
from jitwarm.scenario import Case, Parallel

ROOT = Path(__file__).parents[1]
EIGHT = Case(schema=1, name="s", model="m:x", parallel=Parallel(tp=8, dcp=8))
# Called with JOB and REPLY. FAIL names jobs as arm-rank, `+` before it: only once another of this
# kind has answered. SLEEP names jobs that write their process id to PIDS and never end; they have a
# scratch folder of their own by then.
STAND_IN = """
import json, os, sys, tempfile, time
from pathlib import Path

job = json.loads(Path(sys.argv[1]).read_text())
name = f"{job['arm']}-{job['ranks'][0]}"
if "MONITORS" in os.environ:
    with open(os.environ["MONITORS"], "a") as file:
        file.write(f"{job['arm']} {job['monitor']}\\n")
log = Path(os.environ["LOG"])
with log.open("a") as file:
    file.write(name + "\\n")
if name in os.environ.get("SLEEP", "").split():
    tempfile.mkdtemp(prefix="jitwarm-")
    (Path(os.environ["PIDS"]) / f"{name}.part").write_text(str(os.getpid()))
    (Path(os.environ["PIDS"]) / f"{name}.part").rename(Path(os.environ["PIDS"]) / name)
    time.sleep(3600)
again = log.read_text().split().count(name) > 1
fail = os.environ.get("FAIL", "").split()
if name in fail or (again and "+" + name in fail):
    code = int(os.environ.get("CODE", "3"))
    reply = {"failure": {"error": "boom", "trace": "", "exit_code": code}}
else:
    reply = {"answer": {
        "arm": job["arm"], "versions": {}, "caches": {}, "import_s": 0.0, "peak_rss_bytes": 0,
        "device": {"kind": "stub", "arch": "sm90", "name": "", "driver": ""},
        "emits_token": False, "checks": [],
    }}
Path(sys.argv[2]).write_text(json.dumps(reply))
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    path = tmp_path / "stand_in.py"
    path.write_text(STAND_IN)
    (tmp_path / "pids").mkdir()
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    monkeypatch.setattr(harness, "WORKER", (sys.executable, str(path)))
    return path


def silent(text):
    pass


def test_every_job_of_a_case_is_answered(stand_in, tmp_path):
    measured = measure(EIGHT, Settings(), silent)
    assert {arm: len(answers) for arm, answers in measured.arms.items()} == {
        "cold": 1,
        "loaded": 1,
        "disk": 1,
    }
    assert (len(measured.ranks), measured.plan.arm, measured.failures) == (2, "plan", [])
    log = (tmp_path / "log").read_text().split()
    assert log[:3] == ["cold-0", "loaded-0", "disk-0"]
    assert sorted(log[3:]) == ["loaded-1", "loaded-7", "plan-0"]


@pytest.mark.parametrize(
    ("device", "arms", "run"),
    [
        ("stub", ("loaded",), ["loaded"]),
        ("stub", ("compiled", "disk"), ["loaded", "disk"]),  # nothing to load on a stub
        ("cuda", ("compiled", "cold"), ["cold", "loaded", "compiled"]),
        ("cuda", harness.ARMS, ["cold", "loaded", "disk", "compiled"]),
    ],
)
def test_the_arms_that_were_asked_for_and_loaded(stand_in, tmp_path, device, arms, run):
    one = msgspec.structs.replace(EIGHT, parallel=Parallel())
    measured = measure(one, Settings(device=device, arms=arms), silent)
    assert list(measured.arms) == run
    assert (tmp_path / "log").read_text().split() == [f"{arm}-0" for arm in run]


def test_every_arm_that_warms_up_has_the_mode_of_the_monitor(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("MONITORS", str(tmp_path / "monitors"))
    one = msgspec.structs.replace(EIGHT, parallel=Parallel())
    measured = measure(one, Settings(device="cuda", monitor="error", samples=2), silent)
    assert (tmp_path / "monitors").read_text().splitlines() == [
        "cold record",
        "loaded error",
        "disk error",
        "compiled error",
    ] * 2
    assert {arm: [one.process for one in own] for arm, own in measured.arms.items()} == {
        arm: [1, 2] for arm in harness.ARMS
    }


@pytest.mark.parametrize("code", ["2", "3"])
@pytest.mark.parametrize(
    ("fail", "failures", "ranks", "has_plan"),
    [
        ("loaded-7", ["rank 7 failed: s: boom"], 1, True),
        ("plan-0", ["plans of all ranks failed: s: boom"], 2, False),
        (
            "loaded-1 loaded-7 plan-0",
            [
                "rank 1 failed: s: boom",
                "rank 7 failed: s: boom",
                "plans of all ranks failed: s: boom",
            ],
            0,
            False,
        ),
        ("disk-0", ["arm disk failed: s: boom"], 2, True),
    ],
)
def test_a_failure_behind_arm_loaded_does_not_cost_its_result(
    stand_in, monkeypatch, fail, failures, ranks, has_plan, code
):
    monkeypatch.setenv("FAIL", fail)
    monkeypatch.setenv("CODE", code)
    measured = measure(EIGHT, Settings(), silent)
    assert len(measured.arms["loaded"]) == 1
    assert measured.failures == failures
    assert (len(measured.ranks), measured.plan is not None) == (ranks, has_plan)


def test_a_second_sample_that_fails_is_kept_as_a_failure(stand_in, monkeypatch):
    monkeypatch.setenv("FAIL", "+loaded-0")
    measured = measure(EIGHT, Settings(samples=2), silent)
    assert measured.failures == ["arm loaded failed: s: boom"]
    assert {arm: len(answers) for arm, answers in measured.arms.items()} == {
        "cold": 2,
        "loaded": 1,
        "disk": 1,  # its second has no full caches to start from
    }


@pytest.mark.parametrize(("fail", "code"), [("loaded-0", "3"), ("loaded-0", "2"), ("cold-0", "2")])
def test_without_arm_loaded_there_is_nothing_to_report(stand_in, monkeypatch, fail, code):
    monkeypatch.setenv("FAIL", fail)
    monkeypatch.setenv("CODE", code)
    with pytest.raises(ArmFailed, match="boom") as error:
        measure(EIGHT, Settings(), silent)
    assert error.value.exit_code == int(code)


def test_an_error_of_the_harness_itself_ends_the_processes(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("SLEEP", "loaded-1")
    attempt = harness._attempt

    def broken(job, *others):
        if job.ranks == (7,):
            wait_for([tmp_path / "pids" / "loaded-1"])
            raise ZeroDivisionError
        return attempt(job, *others)

    monkeypatch.setattr(harness, "_attempt", broken)
    # Rank 1's result is asked for first, so the failure of rank 7 must not wait for it.
    with pytest.raises(ZeroDivisionError):
        measure(EIGHT, Settings(), silent)
    assert_ended(tmp_path / "pids" / "loaded-1")


def test_no_room_for_a_process_costs_what_it_would_have_measured(stand_in, monkeypatch):
    isolated = harness.caches.isolated

    def full(folder):
        if folder.name == "0-cold":
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        return isolated(folder)

    monkeypatch.setattr(harness.caches, "isolated", full)
    measured = measure(EIGHT, Settings(), silent)
    assert measured.arms["loaded"]
    (failure,) = measured.failures
    assert failure.startswith(f"arm cold failed: {EIGHT.title}: no process of arm cold: ")
    assert "No space left on device" in failure


def test_a_scratch_folder_that_cannot_be_made(monkeypatch, tmp_path):
    monkeypatch.setattr(harness.tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(NotWrittenError, match="missing/.* cannot be written: No such file"):
        measure(EIGHT, Settings(), silent)


# Starts the command line with the default handlers, whatever this process inherited, and with
# argv[1] in place of the measuring process.
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
from jitwarm import cli, harness
if sys.argv[1]:
    harness.WORKER = (sys.executable, sys.argv[1])
sys.exit(cli.main(sys.argv[2:]))
"""
SCENARIO = 'schema = 1\nname = "s"\nmodel = "sleeping:Model"\n[parallel]\ntp = 8\ndcp = 8\n'
# The module of the scenario's model; the stand-in never imports it.
SLEEPING = """
import os, time
from pathlib import Path

class Model:
    layers = 1
    def __init__(self, config, device):
        part = Path(os.environ["PIDS"]) / "model.part"
        part.write_text(str(os.getpid()))
        part.rename(part.with_name("model"))
        time.sleep(3600)
    def step(self, batch): pass
"""


def interrupted(tmp_path, worker, command, number, pids):
    """Start a command, wait for its processes, send it alone a signal; returns how it ended."""
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    (tmp_path / "s.toml").write_text(SCENARIO)
    (tmp_path / "scratch").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "scratch"), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, worker, command, "s.toml", "--device", "stub"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(pids)
        assert list((tmp_path / "scratch").glob("jitwarm-*"))
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    except BaseException:
        process_group.end(process)  # and the measuring processes, which would sleep on
        process.communicate()
        raise
    for pid in pids:
        assert_ended(pid)
    assert list((tmp_path / "scratch").iterdir()) == []
    return process.returncode, errors.splitlines()[-1]


def wait_for(files):
    limit = time.monotonic() + 120
    while not all(file.exists() for file in files):
        assert time.monotonic() < limit, "the processes did not start"
        time.sleep(0.02)


def assert_ended(pid):
    """It is gone at once: whoever started it has waited for it."""
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("jobs", ["cold-0", "loaded-1 loaded-7"])
def test_an_interrupt_leaves_no_process_and_no_scratch_folder(
    stand_in, tmp_path, monkeypatch, number, jobs
):
    monkeypatch.setenv("SLEEP", jobs)
    pids = [tmp_path / "pids" / job for job in jobs.split()]
    ended = interrupted(tmp_path, str(stand_in), "run", number, pids)
    assert ended == (3, "jitwarm: interrupted")
    log = (tmp_path / "log").read_text().split()
    assert "plan-0" not in log  # what was still to be started is not


def test_an_interrupt_ends_a_real_measuring_process(stand_in, tmp_path):
    pids = [tmp_path / "pids" / "model"]
    assert interrupted(tmp_path, "", "plan", signal.SIGTERM, pids) == (3, "jitwarm: interrupted")
