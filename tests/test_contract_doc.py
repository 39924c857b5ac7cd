"""docs/contract.md is true: its example runs and prints what it says, its names are those there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jitwarm import contract, declare

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "contract.md").read_text()
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL).findall(TEXT)
SAID = ["18 binaries ready", "0 compiles, disk hits or loads while serving"]


def run(source, tmp_path):
    """Run the example as the file that a reader would save it in: Triton reads its source."""
    path = tmp_path / "example.py"
    path.write_text(source)
    folders = filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])
    env = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, env=env, check=False
    )


def paragraph(start):
    """The names in backquotes of the paragraph that starts so."""
    [found] = [part for part in TEXT.split("\n\n") if part.startswith(start)]
    return set(re.findall(r"`(\w+)`", found))


def test_there_is_one_example_and_the_page_is_short():
    assert len(EXAMPLE) == 1 and len(TEXT.splitlines()) < 130
    prose = re.sub(r"\s+", " ", TEXT)
    assert all(f"`{line}`" in prose for line in SAID)


@pytest.mark.triton
def test_the_example_prints_what_the_page_says(tmp_path):
    done = run(EXAMPLE[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == SAID


@pytest.mark.triton
@pytest.mark.parametrize(
    ("right", "wrong", "error"),
    [
        ('"n": key.block', '"n": key.stride', "another key: block 2 instead of 1;"),
        ('"BLOCK": key.block, ', "", "nothing binds kernel argument 'BLOCK'"),
        ('{"most": 100}', '{"most": 0}', "CompileRefused: "),
    ],
)
def test_the_mistakes_of_which_the_page_speaks(right, wrong, error, tmp_path):
    assert EXAMPLE[0].count(right) == 1
    done = run(EXAMPLE[0].replace(right, wrong), tmp_path)
    assert done.returncode == 1 and error in done.stderr


def test_all_names_are_there_and_no_other():
    named = paragraph("From `jitwarm.contract`:") - {"jitwarm"}
    assert named == set(contract.__all__)
    assert contract.NoKeys is declare.NoKeys
    members = paragraph("Of a kernel object:")
    given = {"CompileKey", "kernel", "kernel_name", "_compiled_cache"}  # by a class or an object
    assert given < members
    assert {n for n in members - given if not hasattr(contract.TritonJitKernel, n)} == set()


def test_what_is_not_built_is_not_there():
    known = {*dir(contract), *dir(contract.TritonJitKernel)}
    absent = paragraph("Not built:")
    assert len(absent) > 5 and not known & absent
