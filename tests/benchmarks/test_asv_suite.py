"""The asv suite without an asv run: its configuration, its discovery, its numbers."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import subprocess
import sys
import tomllib
from math import inf, nan
from pathlib import Path

import msgspec
import pytest

from benchmarks import case as case_module
from benchmarks.tracks import TRACKS, BrokenMeasurementError, numbers, tracked, unmeasured
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
# Benchmark -> its case, and a digest of what the scenario says about it. Where the digest differs,
# the numbers of the case mean something else: raise `version` of `tracked` in its file, then write
# the new digest here.
CASES = {
    "deepseek_v32_dcp1.DeepSeekV32Dcp1": ("deepseek-v3.2-dcp", "dcp=1", "88438b6d"),
    "deepseek_v32_dcp8.DeepSeekV32Dcp8": ("deepseek-v3.2-dcp", "dcp=8", "88438b6d"),
    "deepseek_v32_first_token.DeepSeekV32FirstToken": ("deepseek-v3.2-first-token", "", "fd4cb4b8"),
    "deepseek_v4_first_token.DeepSeekV4FirstToken": ("deepseek-v4-first-token", "", "0bb27bd1"),
    "deepseek_v4_pro.DeepSeekV4Pro": ("deepseek-v4-pro", "seqs=256", "731ce10a"),
    "dsv4_dcp.DSv4Dcp2": ("dsv4-dcp", "dcp=2", "e54d2634"),
    "inkling.Inkling": ("inkling", "tp=8", "0d2d007a"),
    "inkling_first_token.InklingFirstToken": ("inkling-first-token", "", "420454ca"),
    "mla_blocks.MLABlocks": ("mla-blocks", "block=128", "4d44196f"),
    "mla_prefill.MLAPrefill": ("mla-prefill", "head_dims=128-64-128", "6a066cd4"),
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
    warm=WarmRecord(4.5, 8.0, 2, "loaded", 71, (), (), redundant_compiles=2),
    coverage=coverage(missed=1, unreached=33),
    rank_coverage=(coverage(1, missed=2, unreached=40), coverage(7, missed=0)),
    rank_plans=(),
    arms={
        "cold": arm(excess_ms=750.0, ready_s=0.0),
        "loaded": arm(excess_ms=1.25, ready_s=4.75, later_ms=3.5),
        "disk": arm(excess_ms=62.5, ready_s=0.75),
    },
    launch_overhead_us=14.0,
    enumeration_s=0.5,
    import_s=2.0,
    peak_rss_bytes=700_000_000,
    findings=(),
    checks=(),
)


def changed(**values):
    return msgspec.structs.replace(RESULT, **values)


ON_A_GPU = changed(
    device=DeviceRecord("cuda", "sm90", "a GPU", "580"),
    arms=RESULT.arms | {"compiled": arm(excess_ms=9.5, ready_s=4.0)},
)


def with_loaded(**values):
    return changed(
        arms=RESULT.arms | {"loaded": arm(**{"later_ms": 3.5, "excess_ms": 1.0} | values)}
    )


def test_numbers_of_a_small_result():
    assert numbers(RESULT) == {
        "start_up": 4.75,
        "second_start_up": 0.75,
        "compile_keys": 71,
        "unique_fraction": 0.125,  # the dedup ratio upside down: less is better
        "runtime_misses": 3,  # of all replayed ranks
        "unreached_keys": 33,  # of the timed rank
        "redundant_compiles": 2,
        "first_step_excess_cold": 0.75,
        "first_step_excess_compiled": "arm compiled differs from loaded on a GPU only",
        "first_step_excess_loaded": 0.00125,
        "first_step_excess_disk": 0.0625,
        "later_step": 0.0035,
        "launch_overhead": 14e-6,
        "key_enumeration": 0.5,
        "worker_import": 2.0,
        "peak_memory": 700_000_000,
    }


def test_on_a_gpu_every_track_is_a_number():
    found = numbers(ON_A_GPU)
    assert found == numbers(RESULT) | {"first_step_excess_compiled": 0.0095}
    assert list(found) == [track.name for track in TRACKS]


def test_on_a_gpu_the_arm_compiled_must_not_be_missing():
    with pytest.raises(BrokenMeasurementError, match="hand-made: arm compiled has no sample"):
        numbers(msgspec.structs.replace(ON_A_GPU, arms=RESULT.arms))


def test_a_first_step_faster_than_later_ones_has_no_excess():
    assert numbers(with_loaded(excess_ms=-0.5))["first_step_excess_loaded"] == 0.0


def test_a_first_token_is_one():
    with pytest.raises(BrokenMeasurementError, match="emitted no token"):
        numbers(RESULT, tokens=True)
    assert numbers(with_loaded(is_first_token=True), tokens=True)["later_step"] == 0.0035


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (changed(arms={"cold": arm()}), "arm loaded has no sample"),
        (changed(arms=RESULT.arms | {"loaded": arm(samples=0)}), "arm loaded has no sample"),
        (changed(arms={"loaded": arm()}), "arm disk has no sample; arm cold has no sample"),
        (with_loaded(excess_ms=None), "arm loaded has no excess: no prefill step is repeated"),
        (with_loaded(later_ms=None), "arm loaded has no later step"),
        (with_loaded(later_ms=0.0), "later_step is 0.0"),
        (changed(launch_overhead_us=0.0), "launch_overhead is 0.0"),
        (changed(enumeration_s=0.0), "key_enumeration is 0.0"),
        (changed(import_s=0.0), "worker_import is 0.0"),
        (changed(peak_rss_bytes=0), "peak_memory is 0"),
        (changed(rank_coverage=(coverage(7, launches=0),)), "no launches at rank 7"),
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
        (with_loaded(ready_s=nan), "start_up is nan"),
        (changed(arms=RESULT.arms | {"cold": arm(excess_ms=inf)}), "cold is inf"),
    ],
)
def test_a_run_that_measured_nothing_raises(broken, problem):
    with pytest.raises(BrokenMeasurementError, match=problem):
        numbers(broken)


def test_an_arm_that_died_raises():
    with pytest.raises(BrokenMeasurementError, match="hand-made: arm disk failed: why"):
        numbers(RESULT, ["arm disk failed: why"])


@pytest.fixture
def suite():
    return tracked("Case")(type("Suite", (), {}))()


def test_a_track_gives_its_number(suite):
    cache = pickle.loads(pickle.dumps(numbers(RESULT)))  # asv pickles it between processes
    assert suite.track_start_up.setup(cache) is None
    assert suite.track_start_up(cache) == 4.75


def test_a_track_raises_for_what_is_not_in_the_cache_or_no_number(suite):
    with pytest.raises(KeyError):
        suite.track_start_up({})
    with pytest.raises(BrokenMeasurementError):
        suite.track_start_up({"start_up": nan})


def test_what_this_machine_cannot_measure_is_skipped_with_its_reason(suite):
    assert set(unmeasured("no GPU")) == {track.name for track in TRACKS}
    with pytest.raises(NotImplementedError, match="^no GPU$"):  # asv: "n/a"
        suite.track_start_up.setup(unmeasured("no GPU"))
    with pytest.raises(BrokenMeasurementError, match="start_up: no GPU"):  # and never a number
        suite.track_start_up(unmeasured("no GPU"))


def test_titles_and_versions():
    kind = type("Suite", (), {})
    assert tracked("Case", first="first token", version=3)(kind) is kind
    track = kind.track_first_step_excess_cold
    assert track.pretty_name == "Case: first token minus later ones, not warmed"
    assert (track.unit, track.version) == ("seconds", "2.3")
    tracked("Case")(kind)
    track = kind.track_first_step_excess_cold
    assert (track.pretty_name, track.version) == (
        "Case: first step minus later ones, not warmed",
        "2",
    )


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
    timed = found.pop("imports.ImportTime.timeraw_import_jitwarm")
    assert (timed["type"], timed["version"], timed["unit"]) == ("time", "1", "seconds")
    assert timed["pretty_name"] == "import jitwarm"
    assert timed["timeout"] == 120
    assert set(found) == {f"{case}.track_{track.name}" for case in CASES for track in TRACKS}
    assert {b["type"] for b in found.values()} == {"track"}
    versions = {f"track_{track.name}": track.version for track in TRACKS}
    units = {f"track_{track.name}": track.unit for track in TRACKS}
    for name, b in found.items():  # the default version would be a hash of the source
        assert b["version"] == versions[name.rsplit(".", 1)[1]]
        assert b["unit"] == units[name.rsplit(".", 1)[1]]
    assert all(b["timeout"] and b["setup_cache_timeout"] for b in found.values())
    assert {track.unit for track in TRACKS if not track.exact} == {"seconds", "bytes"}  # scaled
    assert len({b["pretty_name"] for b in found.values()}) == len(found)


def test_no_track_is_better_when_it_is_higher():
    names = [track.name for track in TRACKS]
    assert len(set(names)) == len(names)
    words = {word for name in names for word in name.split("_")}
    assert not words & {"ratio", "hit", "hits", "coverage", "rate", "dedup", "throughput"}


@pytest.mark.parametrize("name", CASES)
def test_a_case(name):
    scenario, selector, digest = CASES[name]
    module, _, kind = name.partition(".")
    text = (ROOT / "benchmarks" / f"{module}.py").read_text()
    arguments = re.search(r"run_case\((.*?)(?:, needs=.*)?\)", text)[1]
    assert arguments == f'"{scenario}.toml"' + (f', "{selector}"' if selector else "")
    assert f"class {kind}:" in text
    assert "setup_cache.timeout = " in text
    path = ROOT / "scenarios" / f"{scenario}.toml"
    for arch in ("sm90", "sm100"):
        selected = load(path).select((",".join(filter(None, (selector, f"arch={arch}"))),))
        assert [one.arch for one in selected] == [arch]
    said = tomllib.loads(path.read_text())
    said = {key: said[key] for key in said if key not in ("quick", "matrix")}
    assert hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:8] == digest


def test_every_file_is_known():
    others = {"__init__", "case", "commit", "imports", "needs", "tracks"}
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert files - others == {name.partition(".")[0] for name in CASES}


def test_a_case_that_this_machine_cannot_run_is_not_run(monkeypatch):
    monkeypatch.setattr("jitwarm.device.gpu_arch", lambda: None)
    monkeypatch.setattr("jitwarm.harness.measure", None)  # calling it fails
    found = case_module.run_case("inkling-first-token.toml", needs=("gpu",))
    assert found == unmeasured("no GPU")


@pytest.mark.parametrize(
    ("gpu", "device", "chosen"),
    [(None, "stub", "sm90"), ("sm90", "cuda", "sm90"), ("sm100", "cuda", "sm100"),
     ("sm80", "stub", "sm90")],
)  # fmt: skip
def test_the_case_of_the_gpu_that_is_here(monkeypatch, gpu, device, chosen):
    asked = []

    def measure(case, settings, _note):
        asked.append((case.title, case.arch, settings.device, settings.samples, settings.steps))
        raise BrokenMeasurementError("far enough")

    monkeypatch.setattr("jitwarm.device.gpu_arch", lambda: gpu)
    monkeypatch.setattr("jitwarm.harness.measure", measure)
    with pytest.raises(BrokenMeasurementError, match="far enough"):
        case_module.run_case("mla-blocks.toml", "block=128")
    assert asked == [(f"mla-blocks block=128 arch={chosen}", chosen, device, 3, 100)]


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
    assert list(conf["matrix"]) == ["req"]
    torch, attention = conf["matrix"]["req"].pop("torch"), conf["matrix"]["req"].pop("flash-attn-4")
    assert conf["matrix"]["req"] == {}
    assert f"TORCH ?= torch=={torch[0]}\n" in (ROOT / "Makefile").read_text()
    assert project["optional-dependencies"]["fa4"] == [f"flash-attn-4=={attention[0]}"]
    assert len(torch) == len(attention) == 1  # a second one would be a second history
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
