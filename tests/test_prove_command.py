"""`jitwarm prove` on models of a user's own: verdicts, findings, exit codes, and the record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KERNEL = """
import triton
import triton.language as tl
from jitwarm.declare import TensorSpec, WarmupChoices, declare, launch

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + columns, mask=columns < n)
    tl.store(x_ptr + columns, x * 2, mask=columns < n)

@declare(scale)
def Scale(config):
    for aligned in {aligned}:
        yield launch(x_ptr=TensorSpec("float32", aligned=aligned), n=WarmupChoices({n}),
                     BLOCK={block})
"""
MODEL = """
import torch
import jitwarm
from jitwarm import Envelope, Ints
from jitwarm.declare import TensorSpec
from kernel import Scale, scale

class Model:
    layers = 3

    def __init__(self, config, device):
        self.x = torch.ones(1024, device=device.torch_device)
        for layer in range(self.layers):
            with jitwarm.owner(f"layers.{layer}"):
                Scale.register_warmup()

    def step(self, batch):
        decodes = batch.num_decodes
        scale[(1,)](self.x[decodes:], batch.num_tokens, BLOCK=256)
"""
ENVELOPES = """
    def envelopes(self):
        yield Envelope(
            Scale, "Model.step", {"decodes": Ints(0, 8), "tokens": Ints(1, {most})},
            lambda decodes, tokens: {
                "x_ptr": TensorSpec("float32", aligned=decodes % 4 == 0), "n": tokens,
                "BLOCK": 256},
            where=lambda decodes, tokens: tokens >= decodes)
"""
SCENARIO = """
schema = 1
name = "own"
model = "model:Model"
scheduler = { max_num_seqs = 8, max_num_batched_tokens = 64 }
traffic = { steps = 60 }
"""
UNALIGNED = "*fp32/"


def prove(
    folder,
    *arguments,
    what="own.toml",
    aligned="(True, False)",
    n="1, 2, 16",
    block="256",
    envelopes=64,
):
    """Exit code, record and text of a proof of this model."""
    (folder / "kernel.py").write_text(KERNEL.format(aligned=aligned, n=n, block=block))
    text = MODEL + (ENVELOPES.replace("{most}", str(envelopes)) if envelopes else "")
    (folder / "model.py").write_text(text)
    (folder / "own.toml").write_text(SCENARIO)
    done = subprocess.run(
        [sys.executable, "-m", "jitwarm", "prove", what, "--device", "stub", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout


def record(folder, **changes):
    code, out = prove(folder, "--json", **changes)
    return code, json.loads(out)


@pytest.mark.triton
def test_a_space_that_is_right(tmp_path):
    code, found = record(tmp_path)
    assert code == 0
    assert found["findings"] == []
    (row,) = found["proof"]
    # 9 x 64 points, less the 0 + 1 + ... + 7 where there are fewer tokens than decodes.
    assert row == {
        "kernel": "Scale",
        "backend": "triton",
        "verdict": "PROVED",
        "points": 9 * 64 - 28,
        "of": 9 * 64 - 28,
        # One token leaves no room for an offset of 4 elements or more, but 0 is aligned too.
        "needed": [6, 6],
        "planned": [6, 6],
        "missing": 0,
        "unreached": 0,
        "spared": 0,
        "reasons": [],
        "no_keys_reason": None,
    }
    (rank,) = found["ranks"]
    assert rank["steps"] == 50
    assert rank["launches"] == 50


@pytest.mark.triton
def test_a_missing_class_comes_with_its_smallest_input(tmp_path):
    code, found = record(tmp_path, aligned="(True,)")
    assert code == 1
    assert {one["kind"] for one in found["findings"]} == {"MISS"}
    assert {one["field"] for one in found["findings"]} == {"x_ptr"}
    assert {one["seen"] for one in found["findings"]} == {UNALIGNED}
    assert {one["smallest"] for one in found["findings"]} == {
        "decodes=1, tokens=1",
        "decodes=1, tokens=2",
        "decodes=1, tokens=16",
    }
    assert found["proof"][0]["missing"] == 3
    _, text = prove(tmp_path, aligned="(True,)")
    assert "    smallest input: decodes=1, tokens=2\n    launched by: Model.step\n" in text
    assert "\n3 missing, 0 unreached; 1 proved; held against 50 launches of 50 real steps" in text


def test_an_unreached_key_is_a_finding(tmp_path):
    code, found = record(tmp_path, n="1, 2, 16, 2**31")
    assert code == 1
    assert {one["kind"] for one in found["findings"]} == {"UNREACHED"}
    assert found["proof"][0]["unreached"] == 2


def test_a_launch_outside_of_the_envelope(tmp_path):
    code, found = record(tmp_path, envelopes=8)
    assert code == 1
    kinds = {one["kind"] for one in found["findings"]}
    assert "ENVELOPE" in kinds
    assert found["proof"][0]["verdict"] == "SEARCHED"


def test_the_last_line_of_a_folder_says_what_was_found(tmp_path):
    (tmp_path / "other.toml").write_text(SCENARIO.replace('"own"', '"other"'))
    for changes, said in (
        ({"envelopes": 8}, "with findings"),
        ({"aligned": "(True,)"}, "with misses"),
        ({"envelopes": None}, "not proved"),
    ):
        code, text = prove(tmp_path, "--require", "proved", what=".", **changes)
        assert (code, text.splitlines()[-1]) == (1, f"2 cases: 2 {said}")


def test_without_envelopes_it_says_sampled(tmp_path):
    code, found = record(tmp_path, envelopes=None)
    assert code == 0
    (row,) = found["proof"]
    assert (row["verdict"], row["missing"]) == ("SAMPLED", 0)
    assert row["reasons"] == ["the model has no envelopes"]
    assert row["points"] == found["ranks"][0]["launches"] == 50
    code, text = prove(tmp_path, "--require", "proved", envelopes=None)
    assert code == 1
    assert "  Scale: SAMPLED: the model has no envelopes\n" in text


def test_a_plan_that_depends_on_the_hash_seed(tmp_path):
    code, found = record(tmp_path, block="512 if hash('a') % 2 else 256")
    # Even under the first seed of this case, odd under the second, as Python is now.
    assert code == 1
    (finding,) = found["findings"]
    assert (finding["kind"], finding["kernel"], finding["field"]) == (
        "KEY-UNSTABLE",
        "Scale",
        "BLOCK",
    )
    assert {finding["warmed"], finding["seen"]} == {"constexpr=512", "constexpr=256"}


def test_a_proof_of_nothing_does_not_pass(tmp_path):
    idle = "class Model:\n    layers = 1\n    __init__ = step = lambda *_: None\n"
    done = prove_model(tmp_path, idle)
    assert done.returncode == 3
    said = "jitwarm: own: no kernel is registered, launched or in an envelope: nothing was proved\n"
    assert done.stderr == said
    head = "own     stub device (no GPU): keys of sm90, nothing compiled\n1 layer, 1 rank\n"
    assert done.stdout.strip() == f"{head}\nnothing was proved"
    kernel = KERNEL.format(aligned="(True,)", n="1", block="256").partition("    for")[0]
    kernel = kernel.replace("import Tensor", "import NoKeys, Tensor")
    (tmp_path / "kernel.py").write_text(f"{kernel}    return NoKeys('why')\n")
    done = prove_model(tmp_path, MODEL.partition("    def step")[0] + IDLE)
    assert done.returncode == 3
    said = "jitwarm: own: no launch and no envelope shows a key of 1 kernel: nothing was proved\n"
    assert done.stderr == said


IDLE = "    step = lambda *_: None\n"


@pytest.mark.parametrize("envelopes", ["", ENVELOPES.replace("{most}", "64")])
def test_a_rank_that_launches_nothing_shows_nothing(tmp_path, envelopes):
    """As `check` and `run` say; envelopes alone would be held against no launch."""
    text = KERNEL.format(aligned="(True, False)", n="1, 2, 16", block="256")
    (tmp_path / "kernel.py").write_text(text)
    done = prove_model(tmp_path, MODEL.partition("    def step")[0] + IDLE + envelopes)
    assert done.returncode == 3
    said = "launched nothing in 50 steps: no miss there shows nothing\n"
    assert done.stderr == f"jitwarm: own: rank 0 {said}"
    one = MODEL.replace("self.x = ", "self.odd = config.parallel_config.dcp_rank % 2; self.x = ")
    one = one.replace("        scale[", "        if not self.odd: scale[")
    sizes = ("--set", "parallel.tp=4", "--set", "parallel.dcp=4")
    done = prove_model(tmp_path, one + envelopes, *sizes)
    assert done.returncode == 3
    assert done.stderr == f"jitwarm: own: rank 1 {said}jitwarm: own: rank 3 {said}"


def test_a_declaration_that_fails_on_another_rank(tmp_path):
    """Rank 0 alone is fine: its plan, and no other, was looked at for failures."""
    fails = "if config.parallel_config.dcp_rank:\n        raise ValueError('mine')\n    for aligned"
    text = KERNEL.format(aligned="(True, False)", n="1, 2, 16", block="256")
    (tmp_path / "kernel.py").write_text(text.replace("for aligned", fails))
    model = MODEL + ENVELOPES.replace("{most}", "64")
    sizes = ("--set", "parallel.tp=2", "--set", "parallel.dcp=2")
    done = prove_model(tmp_path, model, *sizes)
    assert done.returncode == 3
    place = f"{tmp_path}/kernel.py:15"
    assert f"FAILED Scale (ranks [1]): ValueError: mine ({place})\n" in done.stdout


def prove_model(folder, model, *arguments):
    """What `jitwarm prove` does with the model of this text."""
    (folder / "model.py").write_text(model)
    (folder / "own.toml").write_text(SCENARIO)
    return subprocess.run(
        [sys.executable, "-m", "jitwarm", "prove", "own.toml", "--device", "stub", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )


JUNK = {
    "5": (2, r"Model.envelopes() returns a int; return or yield Envelope objects"),
    "{'x': 1}": (2, r"Model.envelopes() returns a dict; return or yield Envelope objects"),
    "[{'x': 1}]": (2, r"Model.envelopes() yields a dict; yield Envelope objects"),
    "[Scale]": (2, r"Model.envelopes() yields a "),
    "exit(0)": (3, r"the model raised SystemExit(0)"),
    "[Envelope(Scale, 's', {'n': Ints(1, 2)}, lambda n: exit(0))]": (
        3,
        r"the model raised SystemExit(0)",
    ),
}


@pytest.mark.parametrize("returned", JUNK)
def test_envelopes_that_are_none_are_one_line(tmp_path, returned):
    """An exit in somebody's model must never look like a proof that ended well."""
    code, problem = JUNK[returned]
    done = proved_with(tmp_path, f"    def envelopes(self):\n        return {returned}\n")
    assert done.returncode == code
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


def test_no_envelope_at_all_proves_nothing(tmp_path):
    done = proved_with(tmp_path, "    def envelopes(self):\n        return []\n")
    assert done.returncode == 1
    (record,) = map(json.loads, done.stdout.splitlines())
    # What neither an envelope nor a step needs is not needed: the model says that these are all.
    unreached, envelope = record["findings"]
    said = "Scale: 1 of 6 planned keys (17%): no launch that was tried needs it"
    assert (unreached["kind"], unreached["message"]) == ("UNREACHED", said)
    said = "real steps launch 5 keys that no envelope of the model has; none launches this kernel"
    assert (envelope["kind"], envelope["message"]) == ("ENVELOPE", f"Scale: {said}")
    (row,) = record["proof"]
    assert (row["verdict"], row["needed"], row["missing"]) == ("SAMPLED", [5, 5], 0)
    assert row["unreached"] == 1
    assert row["reasons"] == [
        "no envelope of the model launches it",
        "real steps launch what no envelope has",
    ]


OTHER = KERNEL.split("@declare", maxsplit=1)[0].replace("scale(", "other(")
STEP = """
    def step(self, batch, _step=step):
        from other import other
        _step(self, batch)
        other[(1,)](self.x, batch.num_tokens, BLOCK=64)
"""


def test_a_kernel_that_nobody_planned_is_told_once(tmp_path):
    """However many keys its launches need: with their number, and the first of them."""
    (tmp_path / "other.py").write_text(OTHER)
    done = proved_with(tmp_path, STEP)
    assert done.returncode == 1
    (record,) = map(json.loads, done.stdout.splitlines())
    (finding,) = record["findings"]
    assert finding["kind"] == "UNDECLARED"
    assert finding["message"] == (
        "other.other: launches need 3 keys of a kernel without any in the plan; the first is "
        f"{finding['seen']}"
    )
    assert finding["seen"].startswith("other.other[x_ptr:*fp32/D; n:")
    assert {row["kernel"]: row["missing"] for row in record["proof"]}["other.other"] == 3


def test_a_launch_beside_the_only_envelope(tmp_path):
    """What the nearest key of an envelope is, said of the envelope."""
    body = ENVELOPES.replace("{most}", "64").replace("Ints(1, 64)", "Ints(16, 16)")
    done = proved_with(tmp_path, body)
    (record,) = map(json.loads, done.stdout.splitlines())
    envelope = record["findings"][-1]
    assert envelope["kind"] == "ENVELOPE"
    assert "`n`: in an envelope as i32 divisible by 16, launched as" in envelope["message"]


def test_a_kernel_that_is_launched_and_neither_planned_nor_in_an_envelope(tmp_path):
    """Its launches are told as missing; the kernel beside it stays proved."""
    (tmp_path / "other.py").write_text(OTHER)
    step = STEP.replace("batch.num_tokens", "16 * batch.num_tokens")
    done = proved_with(tmp_path, ENVELOPES.replace("{most}", "64") + step)
    assert done.returncode == 1
    (record,) = map(json.loads, done.stdout.splitlines())
    assert [(one["kind"], one["kernel"]) for one in record["findings"]] == [
        ("UNDECLARED", "other.other"),
        ("ENVELOPE", "other.other"),
    ]
    rows = {row["kernel"]: (row["verdict"], row["missing"]) for row in record["proof"]}
    assert rows == {"Scale": ("PROVED", 0), "other.other": ("SAMPLED", 1)}


def proved_with(folder, body):
    """A proof of the model with these lines at the end of its class."""
    text = KERNEL.format(aligned="(True, False)", n="1, 2, 16", block=256)
    (folder / "kernel.py").write_text(text)
    return prove_model(folder, MODEL + body, "--json")


@pytest.mark.triton
def test_with_warm_up_switched_off_each_needed_key_is_missing(tmp_path):
    off = ("--set", "warmup.enable_jit_warmup=false")
    code, text = prove(tmp_path, *off)
    assert code == 1
    assert (
        "MISS Scale: warm-up is switched off (enable_jit_warmup = false): the 6 planned keys that "
        "launches need are not made ready\n"
        "    switch it on in the scenario: [warmup] enable_jit_warmup = true\n"
    ) in text
    assert "6 missing, 0 unreached; 1 proved" in text
    code, text = prove(tmp_path, *off, envelopes=None)
    assert code == 1
    (row,) = (line.split() for line in text.splitlines() if line.startswith("Scale "))
    assert row[1] == "SAMPLED"
    assert row[3] == row[5] != "0"  # needed, missing


TUNED = """
import torch
import jitwarm
from jitwarm import Envelope, Values
from jitwarm.declare import TensorSpec
from tuned_subjects import native

class Model:
    layers = 1

    def __init__(self, config, device):
        self.x = torch.ones(64, device=device.torch_device)
        with jitwarm.owner("layers.0"):
            native.register_warmup()

    def step(self, batch):
        for n in (8, 24, 40):
            native[(4,)](self.x, n, 3)
"""
CHOICES = """
    def envelopes(self):
        yield Envelope(native.kernel, "step", {"n": Values(8, 24, 40)},
                       lambda n: {"x_ptr": TensorSpec("float32", shape=(64,)), "n": n, "m": 3})
"""


@pytest.mark.triton
@pytest.mark.parametrize("envelopes", ["", CHOICES])
def test_a_choice_that_real_steps_make_and_start_up_does_not(tmp_path, envelopes):
    done = prove_model(tmp_path, TUNED + envelopes, "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert done.returncode == 1
    assert (finding["kind"], finding["kernel"], finding["seen"]) == ("AUTOTUNE", "native", "40")
