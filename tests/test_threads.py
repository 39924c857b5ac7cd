"""Threads of a model: which of them run, how long a replay waits, and that no process waits on."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jitwarm import harness, threads
from jitwarm.jobs import Job
from jitwarm.scenario import Case, Scheduler, Traffic

ROOT = Path(__file__).parents[1]
MODEL = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from plan_subjects import Copy, copy


class Model:
    layers = 1

    def __init__(self, config, device):
        self.x, self.steps = torch.ones(64), 0
        Copy.register_warmup(16)
        self.pool = ThreadPoolExecutor(1)
        threading.Thread(target=self.sleep, name="sleeper").start()

    def sleep(self):
        time.sleep(300)
        Path(__file__).with_name("woke").touch()

    def step(self, batch):
        self.steps += 1
        n = 17 if self.steps < 20 else 16
        self.pool.submit(lambda: time.sleep(0.01) or copy[(1,)](self.x, n, BLOCK=16))
"""


@pytest.fixture
def sleeper():
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="sleeper")
    thread.start()
    yield thread
    end.set()
    thread.join()


def test_a_pool_that_waits_for_work_does_not_run(sleeper):
    with ThreadPoolExecutor(1, "pool") as pool:
        pool.submit(int).result()
        limit = time.monotonic() + 30
        while "pool_0" in threads.names(threads.running()):
            assert time.monotonic() < limit
        assert {"pool_0", "sleeper"} <= set(threads.names(threads.others()))
        assert "sleeper" in threads.names(threads.running())
        gate = threading.Event()
        done = pool.submit(gate.wait)
        while "pool_0" not in threads.names(threads.running()):
            assert time.monotonic() < limit
        gate.set()
        done.result()


def test_it_waits_until_nothing_comes(monkeypatch, sleeper):
    monkeypatch.setattr(threads, "QUIET_S", 0.1)
    asked = []

    def seen():
        asked.append(None)
        return min(len(asked), 40)

    threads.settle(seen)
    assert len(asked) > 40


def test_it_does_not_wait_for_ever(monkeypatch, sleeper):
    monkeypatch.setattr(threads, "LIMIT_S", 0.2)
    asked = []
    threads.settle(lambda: asked.append(None) or len(asked))
    assert len(asked) > 1


def test_words():
    assert threads.still_run(["a"]) == "1 thread still runs: a"
    assert threads.still_run("abcde") == "5 threads still run: a, b, c and 2 more"


@pytest.mark.triton
@pytest.mark.parametrize("arm", ["loaded", "check"])
def test_a_process_replies_and_ends_whatever_threads_are_left(tmp_path, monkeypatch, capfd, arm):
    (tmp_path / "leaving.py").write_text(MODEL)
    path = os.pathsep.join(map(str, (tmp_path, ROOT / "tests", ROOT)))
    monkeypatch.setenv("PYTHONPATH", path)
    case = Case(
        1,
        "own",
        "leaving:Model",
        scheduler=Scheduler(max_num_seqs=8, max_num_batched_tokens=64),
        traffic=Traffic(steps=40),
    )
    job = Job(case, arm, (0,), 40, "stub", 1, "record", progress=False, replayed=(0,))
    answer = harness.run_process(job, tmp_path / "caches", tmp_path)
    assert not (tmp_path / "woke").exists()  # nobody waited for the thread
    assert "jitwarm: 1 thread still runs: sleeper; ended with the process" in capfd.readouterr().err
    if arm == "check":
        (replay,) = answer.replays
        assert (replay.launches, replay.needed, replay.running) == (40, 2, ("sleeper",))
    else:
        assert sorted(answer.observed.launches.values()) == [19, 21]
        (said,) = (check for check in answer.checks if "thread" in check)
        assert said.startswith("arm loaded: 1 thread still runs: sleeper; what a thread launches")
