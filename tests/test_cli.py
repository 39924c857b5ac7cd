"""The command line in this process: what it refuses, what it lists, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jitwarm.cli import main

ROOT = Path(__file__).parents[1]
SCENARIO = str(ROOT / "scenarios" / "deepseek-v3.2-dcp.toml")
MINIMAL = """
schema = 1
name = "{name}"
model = "{model}"
"""


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setattr("jitwarm.device._nvidia_smi", lambda field: None)


def write(folder, name, text=MINIMAL, model="deepseek-v3.2", file=None):
    path = folder / f"{file or name}.toml"
    path.write_text(text.format(name=name, model=model))
    return path


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            ["--set", "scheduler.max_num_seq=5"],
            2,
            "$.scheduler.max_num_seq: unknown field; did you",
        ),
        (["--set", "cache.block_size=x"], 2, '$.cache.block_size: expected int >= 1, got "x"'),
        (["--set", "parallel.tp=12"], 2, "$.parallel.dcp: dcp 8 does not divide tp 12"),
        (
            ["--set", 'matrix.arch=["sm77"]'],
            2,
            "$.arch: unknown arch 'sm77': expected one of sm80, sm90",
        ),
        (["--set", "model=foo"], 2, "$.model: unknown model 'foo': expected one of deepseek-v3.2"),
        (["--set", "model=no.such:thing"], 2, "$.model: no module 'no.such'"),
        (["--set", "traffic.steps"], 2, "--set traffic.steps: expected FIELD=VALUE"),
        (["--case", "dcp=5"], 2, "$.matrix: no case matches 'dcp=5'; there are: dcp=1 arch=sm90;"),
        (["--device", "cuda"], 3, "this machine has no usable NVIDIA GPU; use --device stub"),
    ],
)
def test_a_bad_request_is_one_line_and_writes_nothing(tmp_path, capsys, arguments, code, text):
    out = tmp_path / "out"
    assert main(["run", SCENARIO, *arguments, "--out", str(out)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("jitwarm: ")
    assert text in line
    assert not out.exists()


def test_a_request_that_only_the_model_can_refuse_writes_nothing_either(tmp_path, capfd):
    out = tmp_path / "out"
    arguments = ["--case", "dcp=1,arch=sm90", "--set", "attention_backend=FLASH", "--out", str(out)]
    assert main(["run", SCENARIO, *arguments]) == 2
    assert "$.attention_backend: unknown backend 'FLASH': expected one of" in capfd.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    "arguments", [["run"], ["fly", SCENARIO], ["run", SCENARIO, "--steps", "0"]]
)
def test_argparse_exits_with_2(arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


def test_scenarios_are_listed(capsys):
    assert main(["scenarios", str(ROOT / "scenarios")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("deepseek-v3.2-dcp.toml: deepseek-v3.2-dcp, model deepseek-v3.2")
    assert lines[1:3] == ["  dcp=1 arch=sm90  quick", "  dcp=1 arch=sm100  quick"]
    assert lines[3] == "  dcp=2 arch=sm90"
    assert main(["scenarios", SCENARIO, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert len(record["cases"]) == 8
    assert record["quick"] == ["dcp=1 arch=sm90", "dcp=1 arch=sm100", "dcp=8 arch=sm90",
                               "dcp=8 arch=sm100"]  # fmt: skip


def test_a_broken_file_in_a_folder_is_found_before_anything_runs(tmp_path, capsys):
    write(tmp_path, "good")
    (tmp_path / "worse.toml").write_text("schema = ")
    assert main(["run", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "worse.toml: $: is not TOML" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_files_with_one_name_would_overwrite_each_other(tmp_path, capsys):
    write(tmp_path, "twin", file="a")
    write(tmp_path, "twin", file="b")
    assert main(["plan", str(tmp_path)]) == 2
    assert "$.name: 'twin' is the name of" in capsys.readouterr().err


def test_in_a_folder_a_selector_may_concern_one_scenario_only(tmp_path, capsys):
    write(tmp_path, "plain")
    assert main(["plan", str(tmp_path), "--case", "dcp=8"]) == 2
    assert "no case is for dcp=8" in capsys.readouterr().err


MODELS = """
class WithoutStep:
    layers = 1
    def __init__(self, config, device): pass

class Wrong:
    def __init__(self, config): pass

class Eager:
    layers = 1
    def __init__(self, config, device):
        from examples.own_kernel.kernel import scale_rows
        import torch
        scale_rows[(1,)](torch.ones(256), torch.ones(256), 16, 0.5, BLOCK=256, num_warps=4)
    def step(self, batch): pass

class Exiting:
    layers = 1
    def __init__(self, config, device):
        import os
        os._exit(7)

class Talking:
    layers = 1
    def __init__(self, config, device):
        print("I talk")
    def step(self, batch):
        print("and talk")
"""


@pytest.mark.parametrize(
    ("model", "code", "text"),
    [
        ("WithoutStep", 2, "returned a WithoutStep without step"),
        ("Wrong", 2, "is called with (config, device): too many positional arguments"),
        ("Missing", 2, "cannot load bad_models:Missing"),
        (
            "Eager",
            3,
            "the construction of the model launched examples.own_kernel.kernel.scale_rows",
        ),
        ("Exiting", 3, "ended with status 7 and no reply"),
    ],
)
def test_models_that_cannot_be_measured(tmp_path, monkeypatch, capfd, model, code, text):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "bad_models.py").write_text(MODELS)
    path = write(tmp_path, "bad", model=f"bad_models:{model}")
    assert main(["run", str(path), "--steps", "2", "--device", "stub"]) == code
    captured = capfd.readouterr()
    assert text in captured.err
    assert captured.out == ""
    assert (tmp_path / "reports" / "out" / "bad" / "case" / "failed.json").exists() == (code == 3)


def test_a_model_that_prints_does_not_spoil_the_data(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad_models.py").write_text(MODELS)
    path = write(tmp_path, "talking", model="bad_models:Talking")
    main(["run", str(path), "--steps", "2", "--device", "stub", "--json"])
    captured = capfd.readouterr()
    (line,) = captured.out.splitlines()
    assert json.loads(line)["scenario"] == "talking"
    assert "and talk" in captured.err
