"""The commit of a file, from a repository that the test makes."""

from __future__ import annotations

import os
import subprocess

import pytest

from jitwarm.record import SourceRecord
from jitwarm.source import is_ignored, source_of


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    (folder / "scenarios").mkdir(parents=True)
    (folder / "scenarios" / "a.toml").write_text("schema = 1\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "one")
    return folder


def git(folder, *arguments):
    names = {f"GIT_{who}_{what}": "somebody" for who in ("AUTHOR", "COMMITTER")
             for what in ("NAME", "EMAIL")}  # fmt: skip
    environment = os.environ | names | {"GIT_COMMITTER_DATE": "2026-11-20T10:00:00+02:00"}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_commit_and_date(repository):
    found = source_of(repository / "scenarios" / "a.toml")
    assert found == SourceRecord(git(repository, "rev-parse", "HEAD"), "2026-11-20T10:00:00+02:00")


def test_a_folder_is_asked_itself(repository):
    assert source_of(repository).commit == git(repository, "rev-parse", "HEAD")


def test_a_changed_file_is_dirty_and_a_new_one_is_not(repository):
    (repository / "new.txt").write_text("x")
    assert not source_of(repository / "scenarios" / "a.toml").dirty
    (repository / "scenarios" / "a.toml").write_text("schema = 2\n")
    assert source_of(repository / "scenarios" / "a.toml").dirty


def test_the_repository_is_the_files_and_not_a_hooks(repository, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert source_of(repository).commit


def test_nothing_is_changed_in_the_repository(repository):
    index = repository / ".git" / "index"
    # `git status` would note the other time.
    os.utime(repository / "scenarios" / "a.toml", (1_000_000_000, 1_000_000_000))
    before = index.read_bytes()
    source_of(repository)
    assert index.read_bytes() == before


def test_no_repository_no_commit_and_no_folder(tmp_path):
    assert source_of(tmp_path / "a.toml") == SourceRecord()
    assert source_of(tmp_path / "none" / "a.toml") == SourceRecord()
    git(tmp_path, "init", "--quiet")
    assert source_of(tmp_path / "a.toml") == SourceRecord()


def test_no_git(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert source_of(repository) == SourceRecord()


def test_a_git_that_hangs_is_not_waited_for(repository, tmp_path, monkeypatch):
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("jitwarm.source.LIMIT_S", 0.2)
    assert source_of(repository) == SourceRecord()


def test_what_git_ignores(repository, tmp_path):
    (repository / ".gitignore").write_text("*.log\n")
    files = [repository / name for name in ("x.log", "scenarios/y.log", "scenarios/new.toml")]
    for file in files:
        file.touch()
    assert [is_ignored(one) for one in files] == [True, True, False]
    assert not is_ignored(repository / "scenarios" / "a.toml")
    assert not is_ignored(tmp_path / "x.log")
    git(repository, "add", "--force", "x.log")
    assert not is_ignored(repository / "x.log")
