"""The measurement of real misses, on the stub device: what is told. Its milliseconds need quiet."""

from __future__ import annotations

import json

import pytest

from measurements import real_misses
from measurements.miss_subjects import SUBJECTS


def test_the_kinds():
    assert len(SUBJECTS) == 10


@pytest.mark.parametrize(
    ("name", "finding", "field", "kinds"),
    [
        ("stride 1", "MISS", "stride", {"compile": 1, "load": 1}),
        ("64-bit size", "MISS", "size", {"compile": 1, "load": 1}),
        ("slow step, no compile", "NOT-JIT", "step", {}),
    ],
)
def test_a_kind_in_a_process_of_its_own(name, finding, field, kinds):
    found = real_misses._in_a_process(name, "stub")
    assert found.expected == [finding, field]
    assert [one[:2] for one in found.findings] == [[finding, field]]
    assert found.kinds == kinds
    assert len(found.refusals) == (2 if finding == "MISS" else 0)
    assert all(one[2] for one in found.findings)


def sample(excess, events, finding=("MISS", "n", "declare it"), refusals=(1.0, 1.0)):
    return real_misses.Sample(
        ["MISS", "n"], [list(finding)], "", excess, events, {"compile": 1}, list(refusals)
    )


@pytest.mark.parametrize(
    ("samples", "wrong"),
    [
        ([sample(100.0, 81.0)], ""),
        ([sample(100.0, 79.0)], "events do not add up to the excess"),
        ([sample(5.0, 3.1)], ""),
        ([sample(5.0, 2.9)], "events do not add up to the excess"),
        # Medians: one process of three may be off.
        ([sample(100.0, 95.0), sample(900.0, 90.0), sample(101.0, 99.0)], ""),
        ([sample(9.0, 9.0, ("DISK-HIT", "n", "x"))], "judged as ['DISK-HIT']"),
        ([sample(9.0, 9.0, ("MISS", "m", "x"))], "field ['m']"),
        ([sample(9.0, 9.0, ("MISS", "n", ""))], "a finding without advice"),
        ([sample(9.0, 9.0, refusals=(1.0,))], "not refused twice"),
        ([sample(9.0, 9.0, refusals=(1.0, 6.0))], "a refusal was slow"),
    ],
)
def test_what_is_called_wrong(monkeypatch, capsys, samples, wrong):
    answers = iter(samples)
    monkeypatch.setattr(real_misses, "_in_a_process", lambda name, kind: next(answers))
    arguments = ["--only", "stride 1", "--processes", str(len(samples)), "--json"]
    assert real_misses.main(arguments) == (1 if wrong else 0)
    assert json.loads(capsys.readouterr().out)["wrong"] == wrong
