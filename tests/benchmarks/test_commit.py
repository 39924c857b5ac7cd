"""The commit that is measured is the one that asv records; what a machine must have, it has."""

from __future__ import annotations

import json
import re
import subprocess
from types import SimpleNamespace

import pytest

from benchmarks import commit, needs
from benchmarks.tracks import BrokenMeasurementError


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a package, whose first commit is not its last."""
    package = tmp_path / "repo" / "jitwarm"
    package.mkdir(parents=True)
    git(tmp_path, "init", "--quiet", str(tmp_path / "repo"))
    (tmp_path / "repo" / ".gitignore").write_text("__pycache__/\n.venv/\n")
    hashes = []
    for text in ("a = 1\n", "a = 2\n"):
        (package / "__init__.py").write_text(text)
        git(package, "add", "..")
        git(package, "commit", "--quiet", "-m", text.strip())
        hashes.append(git(package, "rev-parse", "HEAD"))
    use(monkeypatch, package)
    return SimpleNamespace(package=package, old=hashes[0], head=hashes[1])


def use(monkeypatch, package):
    monkeypatch.setattr(commit, "package_folder", lambda: package)


def wanted(monkeypatch, value):
    monkeypatch.setenv(commit.VARIABLE, value)


@pytest.mark.parametrize("value", ["", "  "])
def test_nothing_is_checked_where_nothing_is_asked_for(monkeypatch, value):
    monkeypatch.setattr(commit, "package_folder", None)
    wanted(monkeypatch, value)
    commit.check_commit()
    monkeypatch.delenv(commit.VARIABLE)
    commit.check_commit()


@pytest.mark.parametrize("length", [40, 12, 7])
def test_the_commit_that_is_checked_out(checkout, monkeypatch, length):
    wanted(monkeypatch, checkout.head[:length].upper())
    commit.check_commit()


def test_another_commit(checkout, monkeypatch):
    wanted(monkeypatch, checkout.old)
    message = f"{commit.VARIABLE} is {checkout.old}, and the jitwarm in {checkout.package} is "
    with pytest.raises(BrokenMeasurementError, match=re.escape(message + checkout.head)):
        commit.check_commit()


@pytest.mark.parametrize("value", ["HEAD", "main", "abc123", "g" * 40, "12345"])
def test_what_is_no_hash(checkout, monkeypatch, value):
    wanted(monkeypatch, value)
    with pytest.raises(BrokenMeasurementError, match="expected a commit's hash"):
        commit.check_commit()


@pytest.mark.parametrize(
    ("name", "shown"), [("__init__.py", "M jitwarm/__init__.py"), ("new.py", "?? jitwarm/new.py")]
)
def test_changes_are_not_the_commit(checkout, monkeypatch, name, shown):
    (checkout.package / name).write_text("a = 3\n")
    wanted(monkeypatch, checkout.head)
    with pytest.raises(BrokenMeasurementError, match=f"it has changes .{re.escape(shown)}"):
        commit.check_commit()


def test_what_is_beside_the_package_does_not_count(checkout, monkeypatch):
    (checkout.package.parent / "notes.txt").write_text("")
    (checkout.package / "__pycache__").mkdir()
    (checkout.package / "__pycache__" / "x.pyc").write_text("")
    wanted(monkeypatch, checkout.head)
    commit.check_commit()


def test_a_copy_inside_of_a_checkout_is_not_that_checkout(checkout, monkeypatch):
    copy = checkout.package.parent / ".venv" / "site-packages" / "jitwarm"
    copy.mkdir(parents=True)
    (copy / "__init__.py").write_text("a = 1\n")  # of the first commit, HEAD is the second
    use(monkeypatch, copy)
    wanted(monkeypatch, checkout.head)
    note(monkeypatch, {"url": "file:///x", "dir_info": {}})
    with pytest.raises(BrokenMeasurementError, match="nobody can tell which commit"):
        commit.check_commit()
    note(monkeypatch, {"vcs_info": {"vcs": "git", "commit_id": checkout.old}})
    with pytest.raises(BrokenMeasurementError, match=f"is {checkout.old}: install the commit"):
        commit.check_commit()
    note(monkeypatch, {"vcs_info": {"vcs": "git", "commit_id": checkout.head}})
    commit.check_commit()


def note(monkeypatch, url):
    said = SimpleNamespace(read_text=lambda name: json.dumps(url) if "url" in name else None)
    monkeypatch.setattr(commit.metadata, "distribution", lambda name: said)


def test_without_git_a_checkout_cannot_be_told(checkout, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    note(monkeypatch, {})
    wanted(monkeypatch, checkout.head)
    with pytest.raises(BrokenMeasurementError, match="nobody can tell"):
        commit.check_commit()


def test_the_package_that_an_import_takes():
    import jitwarm

    assert str(commit.package_folder() / "__init__.py") == jitwarm.__file__


def need(monkeypatch, value, *, fa4=True):
    monkeypatch.setenv(needs.VARIABLE, value)
    monkeypatch.setattr(needs, "_has_fa4", lambda: fa4)


ARCHES = ("sm100", "sm90")
NO_FA4 = "flash-attn-4 is not installed: pip install 'jitwarm[fa4]'"


@pytest.mark.parametrize(
    ("case", "arch", "fa4", "reason"),
    [
        ((), None, False, ""),
        ((), "sm80", False, ""),  # on the stub device
        (("gpu",), "sm90", False, ""),
        (("gpu",), None, True, "no GPU"),
        (("gpu",), "sm80", True, "the GPU here is sm80, the case is for sm100, sm90"),
        (("fa4",), None, True, ""),
        (("fa4",), None, False, NO_FA4),
        (("gpu", "fa4"), None, False, f"no GPU; {NO_FA4}"),
    ],
)
def test_what_a_case_lacks(monkeypatch, case, arch, fa4, reason):
    need(monkeypatch, "", fa4=fa4)
    assert needs.lacking(case, arch, ARCHES) == reason


@pytest.mark.parametrize(
    ("words", "arch", "problem"),
    [
        ("gpu", None, "JITWARM_BENCH_REQUIRE has 'gpu': no GPU"),
        ("gpu, fa4", "sm80", "has 'gpu': the GPU here is sm80"),
        ("fa4", "sm90", f"has 'fa4': {re.escape(NO_FA4)}"),
        ("gpus", "sm90", "JITWARM_BENCH_REQUIRE: 'gpus' is none of gpu, fa4"),
    ],
)
@pytest.mark.parametrize("case", [(), ("gpu", "fa4")])
def test_what_a_machine_must_have_is_no_skip(monkeypatch, words, arch, problem, case):
    """Cases without needs too: they would go on with the numbers of a stub device."""
    need(monkeypatch, words, fa4=False)
    with pytest.raises(BrokenMeasurementError, match=problem):
        needs.lacking(case, arch, ARCHES)


def test_a_machine_that_has_all(monkeypatch):
    need(monkeypatch, " gpu,fa4 ,")
    assert needs.required() == {"gpu", "fa4"}
    assert needs.lacking(("gpu", "fa4"), "sm100", ARCHES) == ""


def test_flash_attention_is_found_without_its_import(monkeypatch):
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: None)
    assert needs._has_fa4() is False

    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(needs.importlib.util, "find_spec", missing)
    assert needs._has_fa4() is False
