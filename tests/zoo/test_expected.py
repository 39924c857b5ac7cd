"""The reviewed expectations: every case of every scenario has one, and some of them are checked.

`ci/pr-check` and `jitwarm check scenarios/` check them all.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import jitwarm
from jitwarm.gate.expectation import case_name, read
from jitwarm.scenario_file import load

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.toml"))
EXPECTED = ROOT / "reports" / "expected"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_case_has_its_row(path):
    scenario = load(path)
    rows = read(EXPECTED / f"{scenario.name}.json", scenario.name).cases
    assert list(rows) == [case_name(case.label) for case in scenario.cases]
    for case in scenario.cases:
        row = rows[case_name(case.label)]
        assert row.arch == case.arch
        assert any(kernel.keys for kernel in row.kernels.values())


def test_there_is_no_file_without_a_scenario():
    names = {f"{load(path).name}.json" for path in SCENARIOS}
    assert {path.name for path in EXPECTED.iterdir()} == names


@pytest.mark.triton
@pytest.mark.parametrize("scenario", ["deepseek-v4-first-token", "dsv4-dcp"])
def test_a_quick_case_is_as_expected(scenario):
    check(scenario)


@pytest.mark.cutedsl
@pytest.mark.parametrize("scenario", ["inkling-first-token", "mla-prefill"])
def test_a_quick_case_of_flash_attention_is_as_expected(scenario):
    pytest.importorskip("flash_attn.cute")
    check(scenario)


def check(scenario):
    done = jitwarm("check", f"scenarios/{scenario}.toml", "--quick", "--json")
    verdict = json.loads(done.stdout)
    assert (done.returncode, [one for one in verdict["statements"] if one["code"]]) == (0, [])
    assert verdict["compared"] > 0
