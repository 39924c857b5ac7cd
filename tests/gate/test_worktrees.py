"""Base as a folder: made from a commit, gone at the end, nothing of the user's touched."""

from __future__ import annotations

import pytest

from engine_repository import git, worktrees
from jitwarm.errors import BaselineError, RunError
from jitwarm.gate.worktrees import (
    checked_out,
    commit_of,
    environment,
    repository_of,
    scratch_folder,
    working_tree,
)

NAMES = ["plain", "with space", "ünï-cødé", "-dash", "quote'\"s", "a:colon", "new\nline", "tail "]


def repository(folder, **files):
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, **(files or {"model": "one"}))
    return folder


def commit(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "change")


@pytest.mark.parametrize("name", NAMES)
def test_a_commit_as_a_folder_whatever_the_repository_is_called(tmp_path, name):
    place = repository(tmp_path / name, model="one")
    commit(place, model="two")
    (place / "sub").mkdir()
    assert repository_of(place / "sub" / "not there") == place
    with checked_out(place, "main~1", tmp_path / "base") as tree:
        assert (tree.folder / "model.py").read_text() == "one"
        assert tree.title == f"main~1 ({commit_of(place, 'main~1')[:10]})"
        assert worktrees(place) == 2
    assert not (tmp_path / "base").exists()
    assert worktrees(place) == 1
    assert git(place, "status", "--porcelain") == ""
    assert git(place, "branch", "--list").split() == ["*", "main"]


def test_it_is_removed_when_something_fails(tmp_path):
    place = repository(tmp_path / "r")

    def interrupted():
        with checked_out(place, "main", tmp_path / "base") as tree:
            (tree.folder / "model.py").write_text("changed")
            (tree.folder / "new.py").write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not (tmp_path / "base").exists()
    assert worktrees(place) == 1


def test_a_folder_that_vanished_is_forgotten(tmp_path):
    place = repository(tmp_path / "r")
    with scratch_folder() as scratch, checked_out(place, "main", scratch / "base") as tree:
        git(place, "worktree", "lock", str(tree.folder))
    assert not scratch.exists()
    assert worktrees(place) == 1


def test_a_worktree_that_git_cannot_make_leaves_nothing(tmp_path):
    place = repository(tmp_path / "r")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "file").write_text("in the way")
    with (
        pytest.raises(RunError, match="cannot be checked out: fatal: .* already exists"),
        checked_out(place, "main", tmp_path / "base"),
    ):
        pass
    assert worktrees(place) == 1


@pytest.mark.parametrize("revision", ["nowhere", "main~7", "", "--help", "main:model.py", "0" * 40])
def test_a_revision_that_is_no_commit_here(tmp_path, revision):
    place = repository(tmp_path / "r")
    with pytest.raises(BaselineError, match="has no commit"):
        commit_of(place, revision)


def test_an_annotated_tag_is_its_commit(tmp_path):
    place = repository(tmp_path / "r")
    git(place, "tag", "--annotate", "--message", "v1", "v1")
    assert commit_of(place, "v1") == commit_of(place, "main")


def test_outside_of_any_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with pytest.raises(BaselineError, match="no git repository holds it"):
        repository_of(tmp_path)


def test_a_repository_without_a_commit(tmp_path):
    git(tmp_path, "init", "--quiet")
    with pytest.raises(BaselineError, match="has no commit 'HEAD'"):
        working_tree(tmp_path)


def test_without_git(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BaselineError, match="git is not installed"):
        repository_of(tmp_path)


def test_the_hooks_of_the_repository_do_not_run(tmp_path):
    place = repository(tmp_path / "r")
    hook = place / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    with checked_out(place, "main", tmp_path / "base"):
        pass
    assert not (tmp_path / "ran").exists()


def test_inside_of_a_hook_git_means_another_repository(tmp_path, monkeypatch):
    place, other = repository(tmp_path / "r"), repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert repository_of(place) == place
    assert "GIT_DIR" not in environment()


def test_the_working_tree_and_what_changes_it(tmp_path):
    place = repository(tmp_path / "r", model="one", other="x")
    clean = working_tree(place)
    assert (clean.changed, clean.folder) == (0, place)
    assert clean.title == f"the working tree at {clean.commit[:10]}"
    (place / "model.py").write_text("two")
    edited = working_tree(place)
    assert edited.title == f"{clean.title}, 1 changed file"
    assert edited.state != clean.state
    (place / "model.py").write_text("three")
    assert working_tree(place).state != edited.state
    (place / "model.py").write_text("one")
    assert working_tree(place) == clean
    (place / "new file.py").write_text("x")
    assert working_tree(place).changed == 1
    assert working_tree(place).state != clean.state
    (place / "new file.py").unlink()
    (place / "compare.log").write_text("grows while times are measured")
    assert working_tree(place) == clean
    git(place, "mv", "other.py", "moved.py")
    assert working_tree(place).changed == 2  # one gone, one new


def test_a_submodule_is_checked_out_from_the_repositorys_own_copy(tmp_path):
    inner = repository(tmp_path / "inner", part="old")
    outer = repository(tmp_path / "outer")
    git(outer, "submodule", "add", "--quiet", str(inner), "parts/the inner")
    git(outer, "commit", "--quiet", "--message", "submodule")
    commit(outer / "parts/the inner", part="new")
    git(outer, "commit", "--quiet", "--all", "--message", "newer submodule")
    with scratch_folder() as scratch, checked_out(outer, "main~1", scratch / "base") as tree:
        assert (tree.folder / "parts/the inner/part.py").read_text() == "old"
    assert worktrees(outer) == worktrees(outer / "parts/the inner") == 1
    assert (outer / "parts/the inner/part.py").read_text() == "new"


def test_a_submodule_that_is_not_there_stays_empty(tmp_path):
    inner, outer = repository(tmp_path / "inner"), repository(tmp_path / "outer")
    git(outer, "submodule", "add", "--quiet", str(inner), "inner")
    git(outer, "commit", "--quiet", "--message", "submodule")
    git(outer, "submodule", "deinit", "--quiet", "--force", "inner")
    with scratch_folder() as scratch, checked_out(outer, "main", scratch / "base") as tree:
        assert list((tree.folder / "inner").iterdir()) == []
