"""What the processes of a check are asked, and that what became of them is put together again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jitwarm import harness
from jitwarm.errors import WorkerError
from jitwarm.harness import Settings, check_cases, hash_seeds
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
    (a, b), (c, d) = hash_seeds(ONE), hash_seeds(EIGHT)
    assert len({a, b, c, d}) == 4
    assert [tuple(map(str, pair)) for pair in found] == [
        (f"one {a}", f"one {b}"),
        (f"eight {c}", f"eight {d}"),
    ]
    *jobs, at_once = asked
    assert at_once == 3
    assert [(job.arm, job.ranks, job.replayed, job.steps, job.hash_seed) for job in jobs] == [
        ("check", (0,), (0,), 60, a),
        ("check", (0,), (), 60, b),
        ("check", tuple(range(8)), (0,), 100, c),
        ("check", tuple(range(7, -1, -1)), (1, 7), 100, d),
    ]
    assert notes == ["one: planned (1 of 2 cases)", "eight: planned (2 of 2 cases)"]


def test_without_a_replay(asked):
    check_cases([EIGHT], Settings(device="cuda"), 0, 1, lambda _: None)
    assert not any(set(job.replayed) & set(job.ranks) for job in asked[:-1])
    assert {job.device for job in asked[:-1]} == {"cuda"}


def test_many_cases_show_a_choice_between_two_values():
    """It looks alike under half of all pairs of seeds, so hardly under those of all cases."""
    code = "print(hash('a') % 2, end='')"
    cases = [Case(schema=1, name="s", model="m:x", axes={"dcp": dcp}) for dcp in range(8)]
    parities = [
        [
            subprocess.run(
                [sys.executable, "-S", "-c", code],
                env={"PYTHONHASHSEED": str(seed)},
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
            for seed in hash_seeds(case)
        ]
        for case in cases
    ]
    assert any(one != another for one, another in parities)
    assert {hash_seeds(case) for case in cases} == {hash_seeds(case) for case in reversed(cases)}
