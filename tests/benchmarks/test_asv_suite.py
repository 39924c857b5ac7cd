"""The asv suite without an asv run: its configuration, its discovery, its numbers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from math import inf, nan
from pathlib import Path

import msgspec
import pytest

from benchmarks.tracks import TRACKS, BrokenMeasurementError, numbers, tracked
from jitwarm.record import (
    ArmRecord,
    CoverageRecord,
    DeviceRecord,
    FailedKey,
    FunnelRecord,
    Result,
    WarmRecord,
)
from jitwarm.scenario_file import load

ROOT = Path(__file__).resolve().parents[2]
CASES = {
    "deepseek_v32_dcp1.DeepSeekV32Dcp1": "dcp=1,arch=sm90",
    "deepseek_v32_dcp8.DeepSeekV32Dcp8": "dcp=8,arch=sm90",
}


@pytest.fixture(scope="module")
def conf():
    text = (ROOT / "asv.conf.json").read_text()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def arm(**values):
    zeros = {name: 0.0 for name in ArmRecord.__struct_fields__ if name.endswith(("_s", "_ms"))}
    rest = {"spread": None, "compiles": 0, "disk_hits": 0, "loads": 0}
    return ArmRecord(**{"samples": 3, "is_first_token": False, "raw": {}} | zeros | rest | values)


def coverage(rank=0, **values):
    counts = dict.fromkeys(("needed", "warmed", "hit", "missed", "unreached"), 0)
    rest = {"steps": 100, "launches": 900, "unreached_declared": 0}
    parts = {"misses": (), "unreached_keys": ()}
    return CoverageRecord(rank=rank, **counts | rest | parts | values)


RESULT = Result(
    schema=1,
    scenario="hand-made",
    case={},
    scenario_sha256="",
    started_at="",
    device=DeviceRecord("stub", "sm90", "stub device (no GPU)", "none"),
    versions={},
    caches={},
    funnel=FunnelRecord(
        layers=61,
        registrations=488,
        distinct_registrations=61,
        dedup_ratio=8.0,
        points=90,
        keys=85,
        backend_keys=71,
        compiled=71,
        disk_hits=0,
        loaded=0,
    ),
    kernels=(),
    warm=WarmRecord(4.5, 8.0, 2, "loaded", 71, (), (), 0),
    coverage=coverage(missed=1, unreached=33),
    rank_coverage=(coverage(1, missed=2, unreached=40), coverage(7, missed=0)),
    rank_plans=(),
    arms={
        "cold": arm(excess_ms=762.75, ready_s=0.0),
        "loaded": arm(excess_ms=1.25, ready_s=4.75),
        "disk": arm(excess_ms=9.0, ready_s=0.75),
    },
    launch_overhead_us=14.0,
    enumeration_s=0.5,
    import_s=1.0,
    peak_rss_bytes=1,
    findings=(),
    checks=(),
)


def changed(**values):
    return msgspec.structs.replace(RESULT, **values)


def test_numbers_of_a_small_result():
    assert numbers(RESULT) == {
        "start_up": 4.75,
        "compile_keys": 71,
        "unique_fraction": 0.125,  # the dedup ratio upside down: less is better
        "runtime_misses": 3,  # of all replayed ranks
        "unreached_keys": 33,  # of the timed rank
        "first_step_excess_cold": 762.75,
        "first_step_excess_loaded": 1.25,
    }


def test_a_first_step_faster_than_later_ones_has_no_excess():
    assert (
        numbers(changed(arms=RESULT.arms | {"loaded": arm(excess_ms=-0.5)}))[
            "first_step_excess_loaded"
        ]
        == 0.0
    )


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (changed(arms={"cold": arm()}), "arm loaded has no sample"),
        (changed(arms=RESULT.arms | {"loaded": arm(samples=0)}), "arm loaded has no sample"),
        (changed(arms={"loaded": arm()}), "arm cold has no sample"),
        (
            changed(funnel=msgspec.structs.replace(RESULT.funnel, registrations=0)),
            "no registrations",
        ),
        (
            changed(funnel=msgspec.structs.replace(RESULT.funnel, backend_keys=0)),
            "no compile keys",
        ),
        (changed(warm=msgspec.structs.replace(RESULT.warm, warmed=0)), "no warmed keys"),
        (changed(coverage=coverage(launches=0)), "no launches"),
        (
            changed(warm=msgspec.structs.replace(RESULT.warm, failed=(FailedKey("K", "k", "E"),))),
            "K was not warmed: E",
        ),
        (changed(arms=RESULT.arms | {"loaded": arm(ready_s=nan)}), "start_up is nan"),
        (changed(arms=RESULT.arms | {"cold": arm(excess_ms=inf)}), "cold is inf"),
    ],
)
def test_a_run_that_measured_nothing_raises(broken, problem):
    with pytest.raises(BrokenMeasurementError, match=problem):
        numbers(broken)


def test_an_arm_that_died_raises():
    with pytest.raises(BrokenMeasurementError, match="hand-made: arm disk failed: why"):
        numbers(RESULT, ["arm disk failed: why"])


def test_a_track_raises_for_what_is_not_in_the_cache_or_no_number():
    suite = tracked("Case")(type("Suite", (), {}))()
    assert suite.track_start_up({"start_up": 2.5}) == 2.5
    with pytest.raises(KeyError):
        suite.track_start_up({})
    with pytest.raises(BrokenMeasurementError):
        suite.track_start_up({"start_up": nan})


DISCOVER = """
import json, sys
sys.modules["torch"] = sys.modules["triton"] = None  # importing either one fails
from asv_runner._aux import update_sys_path
from asv_runner.discovery import disc_benchmarks
update_sys_path(sys.argv[1])
names = ("type", "unit", "pretty_name", "version", "timeout", "setup_cache_timeout")
found = {b.name: {name: getattr(b, name) for name in names} for b in disc_benchmarks(sys.argv[1])}
print(json.dumps(found | {"jitwarm": "jitwarm" in sys.modules}))
"""


def test_discovery_needs_neither_gpu_nor_torch_nor_jitwarm():
    pytest.importorskip("asv_runner")
    done = subprocess.run(
        [sys.executable, "-c", DISCOVER, str(ROOT / "benchmarks")],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found.pop("jitwarm") is False
    assert set(found) == {f"{case}.track_{track.name}" for case in CASES for track in TRACKS}
    assert {b["type"] for b in found.values()} == {"track"}
    assert {b["version"] for b in found.values()} == {"1"}  # the default would hash the source
    assert all(b["timeout"] and b["setup_cache_timeout"] for b in found.values())
    units = {f"track_{track.name}": track.unit for track in TRACKS}
    assert all(b["unit"] == units[name.rsplit(".", 1)[1]] for name, b in found.items())
    assert len({b["pretty_name"] for b in found.values()}) == len(found)


def test_no_track_is_better_when_it_is_higher():
    names = [track.name for track in TRACKS]
    assert len(set(names)) == len(names)
    assert not [name for name in names if re.search("ratio|hit|coverage|rate|dedup", name)]


def test_the_cases_exist():
    scenario = load(ROOT / "scenarios" / "deepseek-v3.2-dcp.toml")
    assert [len(scenario.select((selector,))) for selector in CASES.values()] == [1, 1]
    for name, selector in CASES.items():
        source = (ROOT / "benchmarks" / name.split(".")[0]).with_suffix(".py").read_text()
        assert f'"deepseek-v3.2-dcp.toml", "{selector}"' in source


def test_every_setting_is_known_to_asv(conf):
    config = pytest.importorskip("asv.config").Config
    assert set(conf) - {"version"} <= set(vars(config()))  # asv accepts any other without a word
    assert config.load(ROOT / "asv.conf.json").benchmark_dir.endswith("benchmarks")


def test_settings(conf):
    assert (conf["environment_type"], conf["launch_method"]) == ("virtualenv", "spawn")
    assert (conf["branches"], conf["default_benchmark_timeout"]) == (["main"], 600)
    assert "pythons" not in conf  # the interpreter that runs asv
    assert len(conf["build_command"]) == 1


def test_asv_is_pinned_and_its_torch_is_that_of_the_tests(conf):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["bench"] == ["asv==0.6.6", "asv_runner==0.3.2"]
    torch = next(iter(conf["matrix"]["req"].items()))
    assert torch[0] == "torch"
    assert f"TORCH ?= torch=={torch[1][0]}" in (ROOT / "Makefile").read_text()
    assert conf["project"] == project["name"]


def test_what_asv_writes_is_ignored_by_git(conf):
    ignored = (ROOT / ".gitignore").read_text().split()
    for name in ("results_dir", "html_dir", "env_dir"):
        assert any(conf[name].startswith(folder) for folder in ignored if folder.endswith("/"))


def test_thresholds_of_exact_and_noisy_numbers(conf):
    for case in CASES:
        for track in TRACKS:
            name = f"{case}.track_{track.name}"
            matching = [
                value
                for pattern, value in conf["regressions_thresholds"].items()
                if re.match(pattern, name)
            ]
            assert max(matching) == (0.0 if track.exact else 0.10), name
