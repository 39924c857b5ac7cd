"""Sides that must not be compared, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_repository import write
from jitwarm.gate.comparable import (
    foreign_modules,
    holds_jitwarm,
    machine_differences,
    outside_copies,
    own_modules,
)
from jitwarm.gate.pairs import Pairs
from jitwarm.record import DeviceRecord
from scripted_times import STUB, VERSIONS, sample

BASE, HEAD = Path("/scratch/base"), Path("/repo")
ROOTS = {"base": BASE, "head": HEAD}


def pairs(head=None, later_base=None):
    return Pairs(sample(), head or sample(), (later_base or sample(),), (sample(),))


def test_the_same_ground():
    assert machine_differences(pairs(), own_jitwarm=False) == []


@pytest.mark.parametrize(
    ("device", "line"),
    [
        (DeviceRecord("cuda", "sm90", "stub device (no GPU)", "none"), "kind: stub on base, cuda"),
        (DeviceRecord("stub", "sm100", "stub device (no GPU)", "none"), "arch: sm90 on base, sm10"),
        (DeviceRecord("stub", "sm90", "H200", "none"), "name: stub device (no GPU) on base, H200"),
        (DeviceRecord("stub", "sm90", "stub device (no GPU)", "580"), "driver: none on base, 580"),
    ],
)
def test_another_device(device, line):
    (found,) = machine_differences(pairs(sample(device=device)), own_jitwarm=False)
    assert found.startswith(f"device {line}")


@pytest.mark.parametrize(
    ("versions", "line"),
    [
        ({"triton": "3.6.0"}, "triton: 3.9.0 on base, 3.6.0 on head"),
        ({"TRITON_DEBUG": "1"}, "TRITON_DEBUG: not set on base, 1 on head"),
        ({"jitwarm": "0.2.0"}, "jitwarm: 0.1.0 on base, 0.2.0 on head"),
    ],
)
def test_another_version_or_setting(versions, line):
    found = pairs(sample(versions=VERSIONS | versions))
    assert machine_differences(found, own_jitwarm=False) == [line]


def test_a_repository_that_holds_jitwarm_may_change_it():
    other = sample(versions=VERSIONS | {"jitwarm": "0.2.0", "new-package": "1"})
    assert machine_differences(pairs(other), own_jitwarm=True) == []
    other = sample(versions=VERSIONS | {"torch": "2.14.0"})
    assert machine_differences(pairs(other), own_jitwarm=True) == [
        "torch: 2.13.0 on base, 2.14.0 on head"
    ]


def test_a_machine_that_changes_between_two_runs():
    lost = sample(device=DeviceRecord("stub", "sm90", "other", "none"))
    assert machine_differences(pairs(later_base=lost), own_jitwarm=False) == [
        f"device name: {STUB.name} on base, other on base"
    ]


MODULES = [
    "/scratch/base/model.py",
    "/scratch/base/jitwarm/__init__.py",
    "/repo/engine/kernels.py",
    "/repo/.venv/lib/python3.11/site-packages/torch/__init__.py",
    "/elsewhere/other.py",
]


def test_whose_a_file_is():
    assert own_modules("base", ROOTS, MODULES) == [Path("model.py"), Path("jitwarm/__init__.py")]
    assert own_modules("head", ROOTS, MODULES) == [Path("engine/kernels.py")]
    assert foreign_modules("base", ROOTS, HEAD, MODULES) == ["/repo/engine/kernels.py"]
    assert foreign_modules("head", ROOTS, HEAD, MODULES) == MODULES[:2]


def test_two_revisions_neither_of_which_is_the_working_tree():
    roots = {"base": BASE, "head": Path("/scratch/head")}
    assert foreign_modules("head", roots, HEAD, ["/repo/a.py", "/scratch/head/b.py"]) == [
        "/repo/a.py"
    ]


def test_a_scratch_folder_inside_of_the_repository():
    roots = {"base": Path("/repo/tmp/base"), "head": HEAD}
    modules = ["/repo/tmp/base/model.py", "/repo/model.py"]
    assert own_modules("base", roots, modules) == [Path("model.py")]
    assert foreign_modules("base", roots, HEAD, modules) == ["/repo/model.py"]
    assert own_modules("head", roots, modules) == [Path("model.py")]


def test_which_repository_holds_jitwarm():
    assert holds_jitwarm([Path("src/jitwarm/__init__.py")])
    assert not holds_jitwarm([Path("jitwarm_models/__init__.py"), Path("model.py")])


@pytest.mark.parametrize("folder", ["", "src/", "python/"])
@pytest.mark.parametrize("place", ["venv/lib/python3.11/site-packages", "other clone/src"])
def test_a_package_of_the_side_that_came_from_elsewhere(tmp_path, folder, place):
    root, away = tmp_path / "side", tmp_path / place
    for name in ("engine/__init__.py", "engine/kernels.py", "model.py"):
        write(root, {folder + name: ""})
        write(away, {name: ""})
    write(away, {"torch/__init__.py": "", "torch/engine/__init__.py": ""})
    others = [str(away / name) for name in ("torch/__init__.py", "torch/engine/__init__.py")]
    copies = [str(away / "engine" / name) for name in ("__init__.py", "kernels.py")]
    own = [str(root / folder / "engine" / name) for name in ("__init__.py", "kernels.py")]
    assert outside_copies(root, [*others, *copies, str(root / "model.py")]) == [
        str(away / "engine")
    ]
    assert outside_copies(root, [*others, *own]) == []


def test_a_copy_that_is_installed_inside_of_the_side(tmp_path):
    inside = ".venv/lib/python3.11/site-packages/engine/__init__.py"
    write(tmp_path, {"src/engine/__init__.py": "", inside: ""})
    assert outside_copies(tmp_path, [str(tmp_path / inside)]) == [str((tmp_path / inside).parent)]


def test_tests_that_are_called_like_what_they_test_are_no_copy(tmp_path):
    write(tmp_path, {"side/tests/torch/__init__.py": "", "side/tests/torch/test_add.py": ""})
    files = {f"site-packages/torch/{name}.py": "" for name in ("__init__", "nn", "cuda")}
    write(tmp_path, files)
    assert outside_copies(tmp_path / "side", [str(tmp_path / name) for name in files]) == []
