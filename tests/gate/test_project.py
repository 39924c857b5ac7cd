"""Where a scenario's project is, and how its files are named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jitwarm.gate.project import expected_folder, in_project, project_of, shown, text_of


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "root" / "part" / "scenarios" / "s.toml"
    path.parent.mkdir(parents=True)
    path.write_text("")
    return path


def test_a_repository_wins_over_a_nearer_pyproject(scenario):
    part, root = scenario.parents[1], scenario.parents[2]
    (part / "pyproject.toml").write_text("")
    assert project_of(scenario) == part
    (root / ".git").write_text("gitdir: elsewhere")  # as in a worktree or a submodule
    assert project_of(scenario) == root
    assert expected_folder(scenario) == root / "reports" / "expected"
    assert in_project(scenario) == "part/scenarios/s.toml"


def test_without_a_mark_it_is_what_holds_the_folder_of_the_scenario(scenario):
    if any(
        (folder / mark).exists()
        for folder in scenario.parents
        for mark in (".git", "pyproject.toml")
    ):
        pytest.skip("the temporary folder is inside of a project")
    assert project_of(scenario) == scenario.parents[1]
    assert in_project(scenario) == "scenarios/s.toml"
    assert project_of(Path("/s.toml")) == Path("/")


def test_a_path_that_goes_through_another_project(scenario, monkeypatch):
    other = scenario.parents[2] / "other"
    (other / "deep").mkdir(parents=True)
    (other / ".git").mkdir()
    (scenario.parents[1] / ".git").mkdir()
    assert (
        project_of(other / "deep" / ".." / ".." / "part" / "scenarios" / "s.toml")
        == scenario.parents[1]
    )
    monkeypatch.chdir(scenario.parent)
    assert project_of(Path("s.toml")) == scenario.parents[1]


def test_paths_as_one_would_type_them(scenario, monkeypatch):
    monkeypatch.chdir(scenario.parents[1])
    assert shown(scenario) == "scenarios/s.toml"
    assert shown(Path("scenarios/s.toml")) == "scenarios/s.toml"
    monkeypatch.chdir(scenario.parent)
    assert shown(scenario.parents[1] / "x.json") == str(scenario.parents[1] / "x.json")


def test_a_name_that_is_no_text():
    assert text_of(Path(os.fsdecode(b"a\xff.toml"))) == "a\\xff.toml"
