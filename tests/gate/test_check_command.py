"""`jitwarm check` for real: changes of a small model, each in fresh processes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = """
import triton
import triton.language as tl
from jitwarm.declare import TensorSpec, WarmupChoices, declare, launch

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

@triton.jit
def fill(x_ptr, VALUE: tl.constexpr):
    tl.store(x_ptr, VALUE)

@declare(scale)
def Scale(config):
    for aligned in (True, False):
        yield launch(x_ptr=TensorSpec("float32", aligned=aligned), n=WarmupChoices(1, 2, 16),
                     BLOCK=WarmupChoices(*BLOCKS(config)))

@declare(fill)
def Fill(config):
    for value in VALUES(config):
        yield launch(x_ptr=TensorSpec("float32"), VALUE=value)

BLOCKS = lambda config: (256,)
VALUES = lambda config: (1, 2)
"""
MODEL = """
import torch
import jitwarm
from kernels import Fill, Scale, fill, scale

class Model:
    layers = 2

    def __init__(self, config, device):
        self.x = torch.ones(1024, device=device.torch_device)
        for layer in range(self.layers):
            with jitwarm.owner(f"layers.{layer}"):
                Scale.register_warmup()
                Fill.register_warmup()

    def step(self, batch):
        skip = batch.num_decodes
        scale[(1,)](self.x[skip:], batch.num_tokens, BLOCK=256)
        fill[(1,)](self.x, VALUE=1)
"""
SCENARIO = """
schema = 1
name = "own"
model = "model:Model"
scheduler = { max_num_seqs = 8, max_num_batched_tokens = 64 }
traffic = { steps = 30 }
"""


class Project:
    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "reports" / "expected" / "own.json"

    def run(self, *arguments, **variables):
        """The command line in a process of its own, as a user starts it."""
        path = os.pathsep.join([str(ROOT), *sys.path])
        return subprocess.run(
            [sys.executable, "-m", "jitwarm", *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": path, "GITHUB_ACTIONS": ""} | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    def check(self, *arguments, **variables):
        return self.run("check", "scenarios/own.toml", *arguments, **variables)

    def change(self, old, new, file="kernels.py"):
        path = self.folder / file
        assert path.read_text().count(old) == 1
        path.write_text(path.read_text().replace(old, new))

    def verdict(self, *arguments):
        """Exit code, headline, and the failing statements as (kind, kernel, text)."""
        done = self.check("--json", *arguments)
        verdict = json.loads(done.stdout)
        failing = [
            (one["kind"], one.get("kernel", ""), one["text"])
            for one in verdict["statements"]
            if one["code"]
        ]
        return done.returncode, verdict["headline"], failing


@pytest.fixture(scope="module")
def accepted(tmp_path_factory):
    """A project whose expectation is what it plans."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "model.py").write_text(MODEL)
    (folder / "pyproject.toml").write_text("")
    (folder / "scenarios").mkdir()
    (folder / "scenarios" / "own.toml").write_text(SCENARIO)
    project = Project(folder)
    first = project.check()
    assert (first.returncode, project.file.exists()) == (4, False)
    (command,) = [line for line in first.stdout.splitlines() if line.startswith("to accept: ")]
    words = shlex.split(command.removeprefix("to accept: "))
    assert words == ["jitwarm", "check", "scenarios/own.toml", "--update"]
    assert project.run(*words[1:]).returncode == 0
    return project


@pytest.fixture
def project(accepted, tmp_path):
    """A copy of it that a test may change."""
    return Project(shutil.copytree(accepted.folder, tmp_path / "project"))


def test_nothing_changed(project):
    done = project.check()
    assert (done.returncode, done.stdout) == (
        0,
        (
            "ok: 2 kernels as expected\n\n"
            "replayed 30 steps at rank 0: 15 decode, 12 prefill, 3 mixed\n\n"
        ),
    )
    assert done.stderr == "own: planned (1 of 1 case)\n"


def test_six_keys_more(project):
    project.change("(256,)\n", "(256, 512)\n")
    code, headline, failing = project.verdict()
    assert (code, headline) == (1, "failed: own Scale: +6 keys: BLOCK=512 (and 1 more)")
    assert failing[1:] == [("COUNT", "Scale", "points 6 -> 12, binaries 6 -> 12")]
    done = project.check("--update")
    assert done.stdout.startswith("updated 1 file: own Scale: +6 keys: BLOCK=512 (and 1 more)\n")
    assert project.check().returncode == 0


def test_one_key_swapped_for_another(project):
    project.change("(1, 2)\n", "(1, 3)\n")
    code, _, failing = project.verdict()
    assert (code, failing) == (1, [("KEYS", "Fill", "+1 key: VALUE=3; -1 key: VALUE=2")])


def test_a_key_less_that_nobody_needs_and_one_that_traffic_needs(project):
    project.change("(1, 2)\n", "(1,)\n")
    code, headline, _ = project.verdict()
    assert (code, headline) == (1, "failed: own Fill: -1 key: VALUE=2 (and 1 more)")
    project.change("(1,)\n", "(2,)\n")
    code, _, failing = project.verdict()
    assert code == 1
    assert failing[0] == (
        "MISS",
        "Fill",
        (
            "traffic needs 1 key that nobody planned: `VALUE`: warmed as the constant 2, "
            "launched as the constant 1"
        ),
    )
    _, _, failing = project.verdict("--no-replay")
    assert [kind for kind, *_ in failing] == ["KEYS", "COUNT"]


def test_a_lost_warm_up(project):
    project.change("                Scale.register_warmup()\n", "", "model.py")
    code, headline, failing = project.verdict()
    assert code == 1
    assert headline.startswith("failed: own Scale: traffic needs ")
    assert [one[:2] for one in failing] == [("MISS", "Scale"), ("MISSING-ROW", "Scale")]
    assert failing[1][2] == "is no longer registered: -6 keys"


def test_a_plan_that_is_not_deterministic(project):
    # Of another parity under the two seeds of this case, as Python is now.
    project.change("(256,)\n", "(512 if hash('ab') % 2 else 256,)\n")
    before = project.file.read_bytes()
    for arguments in ([], ["--update"]):
        code, _, failing = project.verdict("--no-replay", *arguments)
        assert code == 1
        assert [one[:2] for one in failing] == [("NONDETERMINISTIC", "Scale")]
        assert "two processes of this very code disagree: +6 keys: BLOCK=" in failing[0][2]
    assert project.file.read_bytes() == before


def test_only_one_rank_changes(project):
    parallel = "parallel = { tp = 2, dcp = 2 }\nschema = 1\n"
    project.change("schema = 1\n", parallel, "scenarios/own.toml")
    assert project.check("--update").returncode == 0
    project.change("(1, 2)\n", "(1, 2 + config.parallel_config.dcp_rank)\n")
    code, _, failing = project.verdict()
    assert code == 1
    assert failing == [("KEYS", "Fill", "rank 1: +1 key: VALUE=3; -1 key: VALUE=2")]


def test_a_plan_that_depends_on_the_order_of_the_ranks(project):
    parallel = "parallel = { tp = 2, dcp = 2 }\nschema = 1\n"
    project.change("schema = 1\n", parallel, "scenarios/own.toml")
    assert project.check("--update").returncode == 0
    project.change("(1, 2)\n", "(1, 2, len(SEEN.append(0) or SEEN) + 2)\nSEEN = []\n")
    code, _, failing = project.verdict("--no-replay")
    assert code == 1
    assert [one[:2] for one in failing] == [("NONDETERMINISTIC", "Fill")]
    assert failing[0][2].endswith(
        "rank 0: +1 key: VALUE=4; -1 key: VALUE=3 | rank 1: +1 key: VALUE=3; -1 key: VALUE=4"
    )


def test_a_scenario_that_cannot_be_loaded_and_a_model_that_fails(project):
    before = project.file.read_bytes()
    project.change("layers = 2", "layers = 1 // 0", "model.py")
    done = project.check("--update")
    assert done.returncode == 2
    assert "ZeroDivisionError" in done.stdout.splitlines()[0]
    assert "nothing was written" in done.stderr
    project.change("schema = 1", "schema = 7", "scenarios/own.toml")
    done = project.check()
    assert (done.returncode, done.stdout) == (2, "")
    assert "$.schema" in done.stderr
    assert project.file.read_bytes() == before


def test_a_plan_that_fails_at_one_kernel(project):
    project.change("lambda config: (1, 2)", "lambda config: config.no_such_field")
    code, headline, _ = project.verdict("--update")
    assert code == 3
    assert headline.startswith("broken: own Fill: cannot be planned: AttributeError: ")


def test_everything_that_ci_wants_in_one_go(project):
    project.change("(1, 2)\n", "(1, 2, 3)\n")
    summary = project.folder / "summary.md"
    summary.write_text("what another step has said\n")
    done = project.check(
        "--junit", "out/junit.xml", "--summary", str(summary), "--no-replay",
        GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert done.returncode == 1
    commands = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert len(commands) == 2
    assert commands[0].startswith(
        "::error file=scenarios/own.toml,title=jitwarm check%3A KEYS own Fill::own Fill: +1 key: "
        "VALUE=3%0A+ kernels.fill("
    )
    text = summary.read_text()
    assert text.startswith(
        "what another step has said\n**failed: own Fill: +1 key: VALUE=3 (and 1 more)**\n"
    )
    root = ET.parse(project.folder / "out" / "junit.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "1", "0")
    done = project.check("--json", "--no-replay", "--summary", str(summary), GITHUB_ACTIONS="true")
    assert json.loads(done.stdout)["code"] == 1
    assert done.stderr.count("\n::error ") == 2
    assert summary.read_text().startswith("**failed")  # no summary of a step: a file of its own
