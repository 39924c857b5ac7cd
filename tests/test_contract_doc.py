"""The pages on the contract are true: their examples run and print what they say, their names are
those there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jitwarm import contract, declare

ROOT = Path(__file__).parents[1]
# The most lines of each page.
PAGES = {"contract": 140, "contract-styles": 195, "contract-cutedsl": 130}
TEXT = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in PAGES}
EXAMPLE = re.compile(r"```python\n(.*?)```\n\nIt prints[^\n]*\n\n((?:    [^\n]*\n)+)", re.DOTALL)
EXAMPLES = {name: EXAMPLE.findall(text) for name, text in TEXT.items()}
MARKS = {
    "contract": pytest.mark.triton,
    "contract-styles": pytest.mark.triton,
    "contract-cutedsl": pytest.mark.cutedsl,
}


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
    """The names in backquotes of the paragraph of contract.md that starts so."""
    [found] = [part for part in TEXT["contract"].split("\n\n") if part.startswith(start)]
    return set(re.findall(r"`(\w+)`", found))


def test_every_example_says_what_it_prints():
    shown = {name: text.count("```python") for name, text in TEXT.items()}
    assert shown == {name: len(found) for name, found in EXAMPLES.items()}
    assert shown == {"contract": 1, "contract-styles": 3, "contract-cutedsl": 1}


def test_the_pages_are_short():
    assert {n: len(t.splitlines()) for n, t in TEXT.items() if t.count("\n") > PAGES[n]} == {}


@pytest.mark.parametrize(
    ("page", "number"),
    [
        pytest.param(page, number, marks=MARKS[page], id=f"{page}-{number}")
        for page, found in EXAMPLES.items()
        for number in range(len(found))
    ],
)
def test_an_example_prints_what_its_page_says(page, number, tmp_path):
    if page == "contract-cutedsl":
        pytest.importorskip("cutlass.cute")
    source, said = EXAMPLES[page][number]
    done = run(source, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line.removeprefix("    ") for line in said.splitlines()]


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
    ((source, _),) = EXAMPLES["contract"]
    assert source.count(right) == 1
    done = run(source.replace(right, wrong), tmp_path)
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
    assert len(absent) == 5 and not known & absent
