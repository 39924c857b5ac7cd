"""docs/check.md: its session is run, and its tables are complete."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec

from jitwarm.gate.expectation import Expectation
from jitwarm.gate.verdict import Kind

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "check.md").read_text()
# Kinds that only `jitwarm compare` uses.
OF_COMPARE = {"SLOWER", "FASTER", "NOT-ENOUGH-SAMPLES"}


def session():
    """(command, its output) of each line that begins with a dollar sign."""
    commands = []
    block = ""
    for line in [*PAGE.splitlines(), "end"]:
        if line.startswith("    ") or (block and not line):
            block += line[4:] + "\n"
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            commands.append((command, output.rstrip()))
        block = ""
    return commands


def test_the_session_is_what_happens(tmp_path):
    shutil.copytree(ROOT / "examples" / "own_kernel", tmp_path / "examples" / "own_kernel",
                    ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "jitwarm"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m jitwarm "$@"\n')
    script.chmod(0o755)
    path = [str(tmp_path), str(ROOT), *sys.path]
    environment = os.environ | {
        "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path),
        "GITHUB_ACTIONS": "",
    }
    commands = session()
    assert sum(command.startswith("jitwarm check") for command, _ in commands) == 5
    for command, output in commands:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert re.sub(r"\n{3,}", "\n\n", done.stdout.rstrip()) == output, done.stderr


def test_the_form_of_the_file_is_that_of_the_schema():
    example = re.search(r"```json\n(\{.*?\n\})\n```", PAGE, re.DOTALL)[1]
    found = msgspec.json.decode(example, type=Expectation)
    assert json.loads(example) == json.loads(msgspec.json.encode(found))


def test_every_kind_is_named():
    named = set(re.findall(r"^\| ([A-Z-]+) \|", PAGE, re.MULTILINE))
    assert named == set(get_args(Kind)) - OF_COMPARE
