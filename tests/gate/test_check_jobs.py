"""What the processes of a check are asked, and that what became of them is put together again."""

from __future__ import annotations

import pytest

from jitwarm import harness
from jitwarm.errors import WorkerError
from jitwarm.harness import Settings, check_cases
from jitwarm.scenario import Case, Parallel, Traffic

ONE = Case(1, "one", "some.where:Model", traffic=Traffic(steps=60))
EIGHT = Case(1, "eight", "some.where:Model", parallel=Parallel(tp=8, dcp=8))


@pytest.fixture
def asked(monkeypatch):
    """The jobs; each ends with an error that names it."""
    seen = []

    def run_all(jobs, cache, scratch, at_once, done):
        seen.extend(jobs)
        seen.append(at_once)
        for job in jobs:
            done(job)
        return [WorkerError(f"{job.case.name} {job.hash_seed}") for job in jobs]

    monkeypatch.setattr(harness, "_run_all", run_all)
    return seen


def test_two_processes_a_case(asked):
    notes = []
    found = check_cases([ONE, EIGHT], Settings(), 100, 3, notes.append)
    assert [tuple(map(str, pair)) for pair in found] == [("one 1", "one 2"), ("eight 1", "eight 2")]
    *jobs, at_once = asked
    assert at_once == 3
    assert [(job.arm, job.ranks, job.replayed, job.steps, job.hash_seed) for job in jobs] == [
        ("check", (0,), (0,), 60, 1),
        ("check", (0,), (), 60, 2),
        ("check", tuple(range(8)), (0,), 100, 1),
        ("check", tuple(range(7, -1, -1)), (1, 7), 100, 2),
    ]
    assert notes == ["one: planned (1 of 2 cases)", "eight: planned (2 of 2 cases)"]


def test_without_a_replay(asked):
    check_cases([EIGHT], Settings(device="cuda"), 0, 1, lambda _: None)
    assert not any(set(job.replayed) & set(job.ranks) for job in asked[:-1])
    assert {job.device for job in asked[:-1]} == {"cuda"}
