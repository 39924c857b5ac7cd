"""`measurements/power.py` on stored runs: judged by the rule as it is, or told why not."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from jitwarm.gate import calibration as c
from measurements import power
from scripted_times import sample


@pytest.fixture
def stored(tmp_path):
    """A calibration whose rows another rule has made."""
    times = 2.5 * np.exp(np.random.default_rng(0).normal(0.0, 0.02, 120))
    made = c.calibrate("s", "", [sample(float(t)) for t in times], (0.0, 0.0), (8,))
    other = msgspec.structs.replace(made.rows[0], false_alarms=0.9)

    def write(**changes):
        path = tmp_path / "c.json"
        fields = {"rule": (0.5, 0.1, 0.2, 0.05), "rows": (other,), "pair_spread": 0.5} | changes
        c.write_calibration(path, msgspec.structs.replace(made, **fields))
        return path

    return write


def test_stored_rows_are_not_believed(stored):
    found = power.judged_again(stored())
    assert found.rule == c.rule_constants()
    assert [row.pairs for row in found.rows] == list(power.NUMBERS)
    assert {row.false_alarms for row in found.rows} == {0.0}
    assert found.pair_spread == c.pair_spread(np.array(found.cpu_s)) < 0.03


def test_the_verdict_is_that_of_the_runs(stored, capsys):
    assert power.main(["--from", str(stored(versions={})), "--no-commits"]) == 0
    assert capsys.readouterr().out.endswith("\nthe rule holds\n")


@pytest.mark.parametrize("times", [(), (2.5,) * 99, (2.5,) * 119 + (0.0,)])
def test_runs_that_tell_nothing(stored, capsys, times):
    path = stored(cpu_s=times)
    assert power.main(["--from", str(path), "--no-commits"]) == 4
    assert capsys.readouterr() == ("", f"{path}: tells nothing: it takes 100 runs with times\n")


def test_a_file_that_is_not_there(tmp_path, capsys):
    path = tmp_path / "c.json"
    assert power.main(["--from", str(path), "--no-commits"]) == 4
    assert capsys.readouterr().err == f"{path}: there is no such calibration\n"
