"""The calibration: how comparisons are put together, what is stored, and when it says nothing."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from jitwarm.errors import StoredFileError
from jitwarm.gate import calibration as c
from scripted_times import STUB, VERSIONS, sample


def runs(count=120, spread=0.01, drift=0.0):
    times = np.exp(np.random.default_rng(3).normal(0, spread, count))
    return 2.0 * times * (1 + drift * np.arange(count) / count)


def calibrated(times=None, pairs=(8, 14)):
    samples = [sample(float(t)) for t in (runs() if times is None else times)]
    return c.calibrate("own-kernel", "", samples, (0.5, 1.5), pairs)


def test_comparisons_are_blocks_of_neighbours_in_abba_order():
    base, head = c.draw(np.arange(100.0), 14, 50)
    assert base.shape == head.shape == (50, 14)
    for b, h in zip(base, head, strict=True):
        for block in range(0, 14, 4):
            start = b[block]
            size = min(4, 14 - block)
            assert b[block : block + size].tolist() == [start + i for i in (0, 3, 4, 7)][:size]
            assert h[block : block + size].tolist() == [start + i for i in (1, 2, 5, 6)][:size]
    assert base.min() == 0.0 and head.max() == 98.0  # every place is drawn, none beyond the last


def test_the_same_runs_give_the_same_comparisons():
    first, again = c.draw(runs(), 8, 20), c.draw(runs(), 8, 20)
    assert np.array_equal(first[0], again[0]) and np.array_equal(first[1], again[1])


def test_a_drift_is_no_slowdown():
    assert c.power(runs(drift=0.5), 14).false_alarms == 0.0
    assert c.every_window(runs(drift=0.5), 14) == 0.0


def test_power_by_counts():
    row = c.power(runs(spread=0.01), 14)
    assert (row.pairs, row.comparisons, row.false_alarms, row.power_at_effect) == (14, 2000, 0, 1)
    # The floor is 50 ms of 2 s and more; the interval of 14 pairs adds about a percent.
    assert 0.025 < row.smallest_found < 0.045
    wide = c.power(runs(spread=0.10), 14)
    assert wide.false_alarms <= 0.01
    assert wide.power_at_effect < 0.5 < wide.power_at_effect + 0.5


def test_more_pairs_find_less():
    found = [c.power(runs(spread=0.05), pairs).smallest_found for pairs in (8, 14, 24)]
    assert found == sorted(found, reverse=True)


def test_scaled_noise():
    wide = c.scaled_to(runs(), 0.05)
    assert c.pair_spread(wide) == pytest.approx(0.05)
    assert np.median(wide) == pytest.approx(np.median(runs()))


def test_the_pair_spread_is_that_of_neighbours():
    times = np.array([2.0, 2.0, 9.0, 9.0, 1.0, 1.0, 4.0, 4.0])  # far apart, neighbours alike
    assert c.pair_spread(times) == 0.0


def test_stored_and_read(tmp_path):
    made = calibrated()
    c.write_calibration(tmp_path / "c.json", made)
    assert c.read_calibration(tmp_path / "c.json") == made
    assert made.schema == 1
    assert len(made.cpu_s) == len(made.wall_s) == 120
    assert [row.pairs for row in made.rows] == [8, 14]
    assert [made.row(n) and made.row(n).pairs for n in (6, 8, 12, 14, 40)] == [None, 8, 8, 14, 14]


def test_another_file_is_told(tmp_path):
    (tmp_path / "c.json").write_text('{"schema": 1, "cases": {}}')
    with pytest.raises(StoredFileError, match=r"c\.json: is no calibration of jitwarm"):
        c.read_calibration(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, None),
        ({"machine": c.Machine("another", 2, "Linux")}, "processor: another in the calibration"),
        ({"rule": (0.95, 0.1, 0.2, 0.05)}, "rule: (0.95, 0.1, 0.2, 0.05) in the calibration"),
        ({"versions": VERSIONS | {"triton": "3.6.0"}}, "triton: 3.6.0 in the calibration, 3.9.0"),
        ({"device": msgspec.structs.replace(STUB, name="H200")}, "device: H200 in the calibration"),
        ({"versions": VERSIONS | {"jitwarm": "0.0.1"}}, None),
    ],
)
def test_when_it_says_nothing_here(changes, line):
    why = c.why_not(msgspec.structs.replace(calibrated(), **changes), sample())
    assert bool(why) is bool(line)
    assert why == [] or why[0].startswith(line)


def test_it_was_made_for_one_effect():
    assert c.why_not(calibrated(), sample(), 0.10) == []
    assert c.why_not(calibrated(), sample(), 0.05) == [
        "rule: (0.98, 0.1, 0.2, 0.05) in the calibration, (0.98, 0.05, 0.2, 0.05) here"
    ]
