"""What the command line does with scenarios whose model refuses to be built: a missing extra ends
that scenario, never the others.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jitwarm.cli import main
from jitwarm.commands import run as command
from jitwarm.errors import ArmFailed, MissingExtraError, WorkerError

ROOT = Path(__file__).parents[1]
LINE = "scenario needy needs flash-attn-4: pip install 'jitwarm[fa4]'"
MODELS = """
from jitwarm.errors import MissingExtraError

class Plain:
    layers = 1
    def __init__(self, config, device): pass
    def step(self, batch): pass

class Needy(Plain):
    def __init__(self, config, device):
        raise MissingExtraError("model needy", "flash-attn-4", "fa4")
"""
TWO_CASES = """
schema = 1
name = "{name}"
model = "models_of_this_test:{model}"
[matrix]
tp = [1, 2]
[parallel]
tp = "{{tp}}"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a module of models and a folder of three scenarios."""
    monkeypatch.setattr("jitwarm.device._nvidia_smi", lambda field: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "models_of_this_test.py").write_text(MODELS)
    scenarios = tmp_path / "scenarios"
    scenarios.mkdir()
    for name, model in (("before", "Plain"), ("needy", "Needy"), ("zero", "Plain")):
        (scenarios / f"{name}.toml").write_text(TWO_CASES.format(name=name, model=model))
    return tmp_path


BLOCKED = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "flash_attn":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""


@pytest.mark.parametrize("name", ["inkling", "mla-prefill"])
def test_a_shipped_model_without_its_library(tmp_path, monkeypatch, capfd, name):
    monkeypatch.setattr("jitwarm.device._nvidia_smi", lambda field: None)
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
    assert main(["plan", str(ROOT / "scenarios" / f"{name}.toml"), "--device", "stub"]) == 2
    assert capfd.readouterr() == (
        "",
        f"jitwarm: scenario {name} needs flash-attn-4: pip install 'jitwarm[fa4]'\n",
    )


def names(out):
    return [(record["scenario"], record["case"]["axes"]) for record in map(json.loads, out)]


def test_a_folder_goes_on_without_the_scenario_that_lacks_its_extra(folder, capfd):
    assert main(["plan", "scenarios", "--device", "stub", "--case", "tp=1", "--json"]) == 2
    captured = capfd.readouterr()
    assert names(captured.out.splitlines()) == [("before", {"tp": 1}), ("zero", {"tp": 1})]
    assert captured.err.splitlines() == [f"jitwarm: {LINE}"]


@pytest.mark.parametrize("command", ["run", "warm"])
def test_one_scenario_exits_at_once(folder, capfd, command):
    assert main([command, "scenarios/needy.toml", "--device", "stub"]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == f"jitwarm: {LINE}"
    assert captured.err.count("needs flash-attn-4") == 1  # not once a case
    assert not (folder / "reports").exists()


class Measuring:
    """Stands for `commands.run.measure`: records the cases, and fails as it is told."""

    def __init__(self, failures):
        self.failures, self.seen = failures, []

    def __call__(self, case, *_):
        self.seen.append(case.title)
        raise self.failures.get(case.name) or self.failures[case.title]


def refused(case, problem):
    return ArmFailed(f"{case}: {problem}", "", 2)


def test_a_run_measures_every_case_it_can(folder, monkeypatch, capsys):
    crash = WorkerError("before tp=1: the process of arm cold ended with status 7 and no reply")
    measuring = Measuring({
        "before tp=1": crash,
        "before tp=2": refused("before tp=2", "model before: $.parallel.tp: 2 is too many"),
        "needy": refused("needy tp=1", MissingExtraError("scenario needy", "flash-attn-4", "fa4")),
        "zero": crash,
    })  # fmt: skip
    monkeypatch.setattr(command, "measure", measuring)
    assert main(["run", "scenarios", "--device", "stub"]) == 3  # the worst of all
    # A crash costs one case, a refusal the rest of its scenario.
    assert measuring.seen == ["before tp=1", "before tp=2", "needy tp=1", "zero tp=1", "zero tp=2"]
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "ended with status 7" not in line] == [
        "jitwarm: before tp=2: model before: $.parallel.tp: 2 is too many",
        f"jitwarm: {LINE}",
    ]
    written = sorted(path.parent.name for path in (folder / "reports").rglob("failed.json"))
    assert written == ["tp-1", "tp-1", "tp-2"]


def test_an_earlier_result_of_a_refused_scenario_stays(folder, monkeypatch):
    old = folder / "reports" / "out" / "needy" / "tp-1" / "result.json"
    old.parent.mkdir(parents=True)
    old.write_text("{}")
    monkeypatch.setattr(command, "measure", Measuring({"needy": refused("needy tp=1", LINE)}))
    assert main(["run", "scenarios/needy.toml", "--device", "stub"]) == 2
    assert old.read_text() == "{}"
