"""README is true: its files are the repository's, its commands run, its output has that shape."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"<!-- (?P<what>[^>]+?) -->\n```\w+\n(?P<text>.*?)\n```", re.DOTALL)
BLOCKS = [(match["what"], match["text"]) for match in BLOCK.finditer(README)]


def blocks(kind: str) -> list[tuple[str, str]]:
    return [(what, text) for what, text in BLOCKS if what.partition(":")[0] == kind]


def shape(text: str) -> list[str]:
    """Lines with the timings taken out and spaces folded; counts and words stay."""
    timed = re.sub(r"\d+\.\d+", "T", text)
    timed = re.sub(r"\d+ jobs", "N jobs", timed)
    return [re.sub(r"\s+", " ", line).strip() for line in timed.splitlines()]


def test_every_marked_block_is_tested():
    assert {what.partition(":")[0] for what, _ in BLOCKS} == {"file", "run", "python"}
    assert README.count("```python") == len(blocks("python")) + 2


@pytest.mark.parametrize(("what", "text"), blocks("file"))
def test_shown_files_are_the_files(what, text):
    path = ROOT / what.partition(": ")[2]
    assert path.read_text().rstrip("\n") == text


def test_the_example_is_small():
    files = (ROOT / "examples" / "own_kernel").glob("*.*")
    assert 0 < sum(len(path.read_text().splitlines()) for path in files) < 90


@pytest.mark.triton
@pytest.mark.parametrize(("what", "text"), blocks("run"))
def test_commands_print_what_is_shown(what, text, tmp_path):
    command, _, expected = text.partition("\n")
    words = command.removeprefix("$ .venv/bin/jitwarm ").split()
    done = subprocess.run(
        [sys.executable, "-m", "jitwarm", *words, "--out", str(tmp_path / "reports" / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.replace(f"{tmp_path}/", "")
    assert shape(printed)[: len(shape(expected))] == shape(expected)


@pytest.mark.triton
@pytest.mark.parametrize(("what", "text"), blocks("python"))
def test_python_blocks_run(what, text, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "6 binaries ready",
        "0 compiles, disk hits or loads while serving",
    ]


@pytest.mark.triton
def test_the_miss_that_readme_describes(tmp_path):
    package = tmp_path / "examples" / "own_kernel"
    package.mkdir(parents=True)
    for path in (ROOT / "examples" / "own_kernel").glob("*.*"):
        text = path.read_text().replace("for aligned in (True, False)", "for aligned in (True,)")
        (package / path.name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "jitwarm", "run", "examples/own_kernel/scenario.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (shown,) = re.findall(r"```text\n(MISSED.*?)\n```", README, re.DOTALL)
    lines = done.stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("MISSED"))
    assert shape(shown) == shape("\n".join(lines[start : start + 3]))
