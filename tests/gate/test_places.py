"""The user's place, moved to a side."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from jitwarm.gate.places import is_installed, layout


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", ["/usr/lib/somewhere"])
    root = tmp_path / "repo"
    (root / "sub" / "scenarios").mkdir(parents=True)
    (root / "sub" / "scenarios" / "s.toml").write_text("")
    (root / "src").mkdir()
    return root


def test_from_the_root(root, monkeypatch):
    monkeypatch.chdir(root)
    place = layout(root, Path("sub/scenarios/s.toml"), "")
    assert (str(place.here), place.scenario) == (".", "sub/scenarios/s.toml")
    assert place.folder(Path("/base")) == Path("/base")
    assert place.python_path(root) == str(root)


def test_from_a_folder_inside(root, monkeypatch):
    monkeypatch.chdir(root / "src")
    place = layout(root, root / "sub/scenarios/s.toml", "")
    assert (str(place.here), place.scenario) == ("src", "../sub/scenarios/s.toml")
    assert place.folder(Path("/base")) == Path("/base/src")


def test_from_elsewhere_it_is_the_root(root, monkeypatch):
    monkeypatch.chdir("/")
    place = layout(root, root / "sub/scenarios", "")
    assert (str(place.here), place.scenario) == (".", "sub/scenarios")


def test_a_scenario_that_is_a_link_to_elsewhere_stays_where_the_link_is(root, monkeypatch):
    monkeypatch.chdir(root)
    (root.parent / "real.toml").write_text("")
    (root / "sub" / "link.toml").symlink_to(root.parent / "real.toml")
    assert layout(root, Path("sub/link.toml"), "").scenario == "sub/link.toml"


def test_a_repository_reached_through_a_link(root, monkeypatch):
    (root.parent / "link").symlink_to(root)
    monkeypatch.chdir(root.parent / "link" / "sub")
    place = layout(root, Path("scenarios/s.toml"), "")
    assert (str(place.here), place.scenario) == ("sub", "scenarios/s.toml")


def test_folders_of_the_repository_on_the_path_become_the_sides_own(root, monkeypatch, tmp_path):
    monkeypatch.chdir(root)
    venv = root / ".venv/lib/python3/site-packages"
    venv.mkdir(parents=True)
    outside = tmp_path / "outside"
    monkeypatch.setattr(sys, "path", [str(root / "src"), str(venv), str(outside)])
    place = layout(root, Path("sub"), os.pathsep.join(["src", str(outside)]))
    base = tmp_path / "base"
    (base / "src").mkdir(parents=True)
    assert place.python_path(base) == os.pathsep.join(map(str, (base, base / "src", outside)))
    assert place.python_path(base, ["/first"]).split(os.pathsep)[0] == "/first"


def test_a_folder_that_base_has_not_is_left_out(root, monkeypatch, tmp_path):
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "path", [str(root / "src")])
    assert layout(root, Path("sub"), "").python_path(tmp_path / "base") == ""


def test_a_path_that_python_path_cannot_hold(tmp_path, monkeypatch):
    root = tmp_path / "a:colon"
    root.mkdir()
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.chdir(root)
    assert layout(root, Path(), "").python_path(root) == ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (os.__file__, True),
        (pytest.__file__, True),
        (sysconfig.get_path("stdlib") + "/json/decoder.py", True),
        ("/srv/app/.venv/lib/python3.11/site-packages/engine/x.py", True),
        ("/usr/lib/python3/dist-packages/x.py", True),
        (__file__, False),
        ("/usr/src/app/engine.py", False),
    ],
)
def test_what_is_installed(path, expected):
    assert is_installed(Path(path).resolve()) is expected
