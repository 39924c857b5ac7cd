"""A small engine in a git repository of its own, and six changes of it that a gate must tell apart.

Every change is a commit on a branch of its own, on top of the commit `base`. Two kernels: one that
is launched with the keys it warms, and one of whose two keys only one is used.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

KERNELS = """\
import triton
import triton.language as tl

from jitwarm.declare import TensorSpec, WarmupChoices, declare, launch


@triton.jit
def scale_rows(x_ptr, out_ptr, n_columns, factor, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n_columns
    x = tl.load(x_ptr + row * n_columns + columns, mask=inside)
    tl.store(out_ptr + row * n_columns + columns, x * factor, mask=inside)


@triton.jit
def add_rows(x_ptr, out_ptr, n_columns, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n_columns
    x = tl.load(x_ptr + row * n_columns + columns, mask=inside)
    out = tl.load(out_ptr + row * n_columns + columns, mask=inside)
    tl.store(out_ptr + row * n_columns + columns, x + out, mask=inside)


@declare(scale_rows)
def ScaleRows(config):
    for aligned in (True, False):
        yield launch(
            x_ptr=TensorSpec("float32", aligned=aligned),
            out_ptr=TensorSpec("float32"),
            n_columns=WarmupChoices(1, 2, 16),
            factor=0.5,
            BLOCK=256,
        )


@declare(add_rows)
def AddRows(config):
    yield launch(
        x_ptr=TensorSpec("float32"),
        out_ptr=TensorSpec("float32"),
        n_columns=16,
        BLOCK=WarmupChoices(64, 128),
    )
"""
MODEL = """\
import time

import torch
from kernels import AddRows, ScaleRows, add_rows, scale_rows

import jitwarm

WIDTHS = (1, 48, 250)
BLOCK = 128
BUSY_S = 0.0


class Engine:
    layers = 2

    def __init__(self, config, device):
        rows = config.scheduler_config.max_num_batched_tokens
        self.x = torch.ones(rows * 256, device=device.torch_device)
        self.out = torch.empty_like(self.x)
        end = time.process_time() + BUSY_S
        while time.process_time() < end:
            pass
        for layer in range(self.layers):
            with jitwarm.owner(f"layers.{layer}"):
                ScaleRows.register_warmup()
                AddRows.register_warmup()

    def step(self, batch):
        rows, skip = batch.num_tokens, batch.num_decodes % 4
        for _ in range(self.layers):
            for width in WIDTHS:
                x = self.x[skip : skip + rows * width]
                scale_rows[(rows,)](x, self.out, width, 0.5, BLOCK=256)
            add_rows[(rows,)](self.x, self.out, 48, BLOCK=BLOCK)
"""
SCENARIO = """\
schema = 1
name = "engine"
model = "model:Engine"

[scheduler]
max_num_seqs = 8
max_num_batched_tokens = 64

[traffic]
steps = 100
"""
# For tests that measure nothing: the processor seconds that a start-up is said to take, and those
# of its warm-up.
DURATION = "duration.txt"
BASE_S = (3.0, 1.0)
SLOWDOWN = 0.15


@dataclass(frozen=True, slots=True)
class Commit:
    """One change: (file, old text, new text) of it, and what it is said to take, as `BASE_S`.

    `times` are the verdicts of `jitwarm compare` that are right for it, with the exit code of each.
    """

    name: str
    edits: tuple[tuple[str, str, str], ...]
    seconds: tuple[float, float]
    times: dict[str, int] = field(default_factory=lambda: {"SAME": 0})


COMMITS = (
    Commit(
        "six-more-keys",
        (("kernels.py", "            BLOCK=256,", "            BLOCK=WarmupChoices(256, 512),"),),
        (3.8, 1.8),
        {"SLOWER": 1},
    ),
    Commit(
        "one-key-for-another",
        (
            ("kernels.py", "BLOCK=WarmupChoices(64, 128)", "BLOCK=WarmupChoices(64, 32)"),
            ("model.py", "BLOCK = 128", "BLOCK = 32"),
        ),
        BASE_S,
    ),
    Commit(
        "one-key-less",
        (("kernels.py", "BLOCK=WarmupChoices(64, 128)", "BLOCK=128"),),
        (2.88, 0.88),
        {"SAME": 0, "FASTER": 0},
    ),
    Commit(
        "a-warm-up-lost",
        (("model.py", "                AddRows.register_warmup()\n", ""),),
        (2.76, 0.76),
        {"SAME": 0, "FASTER": 0},
    ),
    Commit(
        "slow", (("model.py", "BUSY_S = 0.0", "BUSY_S = {busy_s!r}"),), (3.45, 1.0), {"SLOWER": 1}
    ),
    Commit("nothing", (("model.py", "BLOCK = 128", "BLOCK = 128  # of add_rows"),), BASE_S),
)


def build(repository: Path, base_s: float = 0.0) -> dict[str, str]:
    """Make the repository, which must not exist; returns the commits' hashes by name, `base` too.

    With `base_s`, the processor seconds of a start-up, the slow commit does 15 % of them more.
    """
    repository.mkdir(parents=True)
    _git(repository, "init", "--quiet", "--initial-branch=main")
    files = {
        "kernels.py": KERNELS,
        "model.py": MODEL,
        "scenario.toml": SCENARIO,
        DURATION: f"{BASE_S[0]} {BASE_S[1]}\n",
        ".gitignore": "__pycache__/\n",
    }
    hashes = {"base": _commit(repository, files, "base")}
    for change in COMMITS:
        _git(repository, "checkout", "--quiet", "-b", change.name, hashes["base"])
        changed = {DURATION: f"{change.seconds[0]} {change.seconds[1]}\n"}
        for name, old, new in change.edits:
            text = changed.get(name, files[name])
            assert text.count(old) == 1, f"{change.name}: {old!r} is not once in {name}"
            changed[name] = text.replace(old, new.format(busy_s=round(SLOWDOWN * base_s, 3)))
        hashes[change.name] = _commit(repository, changed, change.name)
    _git(repository, "checkout", "--quiet", "main")
    return hashes


def _commit(repository: Path, files: dict[str, str], message: str) -> str:
    for name, text in files.items():
        (repository / name).write_text(text)
    _git(repository, "add", "--all")
    _git(repository, "commit", "--quiet", "--allow-empty", "--message", message)
    return _git(repository, "rev-parse", "HEAD").strip()


def _git(folder: Path, *arguments: str) -> str:
    """Git without any configuration of the user's, and with a fixed author."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    variables |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for who in ("AUTHOR", "COMMITTER"):
        variables |= {f"GIT_{who}_NAME": "engine", f"GIT_{who}_EMAIL": "engine@example.invalid"}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=variables, capture_output=True, text=True, check=True
    )
    return done.stdout
