"""The launch-cost measurement: its arithmetic on made-up figures, and one short run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from measurements.launch_cost import CLASS, COUNTED, DECLARED, KEYED, NATIVE, summarise

ROOT = Path(__file__).resolve().parents[2]


def test_ratios_and_differences_are_taken_within_a_round():
    rows, targets = summarise(
        {
            NATIVE: [10.0, 20.0, 10.0],  # the machine was slow in the second round
            KEYED: [11.0, 22.0, 11.0],
            DECLARED: [10.0, 20.0, 10.0],
            COUNTED: [10.25, 20.5, 10.25],
            CLASS: [15.4, 30.8, 15.4],
        }
    )
    by_style = {row.style: row for row in rows}
    assert by_style[CLASS].us == 15.4
    assert by_style[NATIVE].spread == 1.0
    assert by_style[CLASS].to_native == pytest.approx(1.54)
    assert by_style[CLASS].to_keyed == pytest.approx(1.4)
    assert by_style[KEYED].added_us == 1.0
    assert [(target.value, target.met) for target in targets] == [
        (1.0, True),
        (0.25, True),
        (pytest.approx(1.4), False),
    ]


def test_a_short_run_on_the_stub_device(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "measurements.launch_cost", "--rounds=1", "--launches=40", "--json"],
        cwd=ROOT,
        env=os.environ | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [row["style"] for row in report["rows"]] == [NATIVE, KEYED, DECLARED, COUNTED, CLASS]
    assert all(len(values) == 1 and values[0] > 0 for values in report["raw_us"].values())
    assert (report["device"]["kind"], report["device"]["arch"]) == ("stub", "sm90")
    assert len(report["targets"]) == 3
