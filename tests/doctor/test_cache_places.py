"""Where caches are when nobody says so, and what is told of them."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path

import pytest

from jitwarm.caches import ROOTS
from jitwarm.doctor import cache_places

HOME = {"HOME": "/home/u", "USER": "u", "TMPDIR": "/var/tmp"}


def folders(environment):
    return {name: str(cache_places.place(name, environment)) for name in ROOTS}


def test_the_defaults():
    assert folders(HOME) == {
        "TRITON_HOME": "/home/u/.triton",
        "TRITON_CACHE_DIR": "/home/u/.triton/cache",
        "TORCHINDUCTOR_CACHE_DIR": "/var/tmp/torchinductor_u",
        "TORCH_EXTENSIONS_DIR": "/home/u/.cache/torch_extensions",
        "CUDA_CACHE_PATH": "/home/u/.nv/ComputeCache",
        "CUTE_DSL_CACHE_DIR": "/var/tmp/u/cutlass_python_cache",
        "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": "/var/tmp/u/flash_attention_cute_dsl_cache",
        "QUACK_CACHE_DIR": "/var/tmp/u/quack_cache",
        "FLASHINFER_WORKSPACE_BASE": "/home/u/.cache/flashinfer",
        "TILELANG_CACHE_DIR": "/home/u/.tilelang/cache",
        "DG_JIT_CACHE_DIR": "/home/u/.deep_gemm",
    }


def test_a_variable_names_the_folder_or_its_parent():
    chosen = {name: f"/c/{name}" for name in ROOTS}
    made_inside = {
        "TRITON_HOME": "/c/TRITON_HOME/.triton",
        "FLASHINFER_WORKSPACE_BASE": "/c/FLASHINFER_WORKSPACE_BASE/.cache/flashinfer",
    }
    assert folders(HOME | chosen) == chosen | made_inside


def test_an_empty_variable_is_none():
    assert folders(HOME | dict.fromkeys(ROOTS, "")) == folders(HOME)


def test_defaults_that_follow_other_variables():
    found = folders(HOME | {"TRITON_HOME": "/t", "XDG_CACHE_HOME": "/x"})
    assert found["TRITON_CACHE_DIR"] == "/t/.triton/cache"
    assert found["TORCH_EXTENSIONS_DIR"] == "/x/torch_extensions"


def test_without_home_user_or_temporary_folder():
    found = folders({})
    assert found["DG_JIT_CACHE_DIR"] == str(Path.home() / ".deep_gemm")
    assert found["QUACK_CACHE_DIR"] == f"{tempfile.gettempdir()}/{getpass.getuser()}/quack_cache"


def test_a_user_without_a_name(monkeypatch):
    def nobody():
        raise OSError

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert folders({})["QUACK_CACHE_DIR"].endswith(f"/uid_{os.getuid()}/quack_cache")


@pytest.mark.triton
@pytest.mark.parametrize("chosen", ["TRITON_HOME", "HOME"])
def test_triton_has_its_caches_where_we_say(fresh_process, tmp_path, chosen):
    text = """
import os
for name in ("TRITON_CACHE_DIR", "TRITON_HOME"):
    if name != "%s":
        os.environ.pop(name, None)
from triton import knobs
from jitwarm.doctor.cache_places import place
print(knobs.cache.dir, place("TRITON_CACHE_DIR", os.environ))
"""
    said = fresh_process(text % chosen, **{chosen: str(tmp_path)}).split()
    assert said == [f"{tmp_path}/.triton/cache"] * 2


def one(name, environment):
    (found,) = (f for f in cache_places.cache_folders(environment) if f.variable == name)
    return found


def test_a_folder_with_files(tmp_path):
    (tmp_path / "cache" / "deep").mkdir(parents=True)
    (tmp_path / "cache" / "a").write_bytes(b"x" * 100)
    (tmp_path / "cache" / "deep" / "b").write_bytes(b"x" * 23)
    (tmp_path / "big").write_bytes(b"x" * 5000)
    (tmp_path / "cache" / "c").symlink_to(tmp_path / "big")
    found = one("TRITON_CACHE_DIR", {"TRITON_CACHE_DIR": str(tmp_path / "cache")})
    link = os.lstat(tmp_path / "cache" / "c").st_size  # the link's own, not what it points to
    assert (found.files, found.bytes, found.complete) == (3, 123 + link, True)
    assert (found.is_set, found.exists, found.writable, found.shared) == (True, True, True, False)
    assert found.holds == ROOTS["TRITON_CACHE_DIR"]
    assert found.free_bytes > 0


def test_a_folder_that_is_not_there_yet(tmp_path):
    found = one("TILELANG_CACHE_DIR", {"HOME": str(tmp_path)})
    assert (found.path, found.is_set) == (f"{tmp_path}/.tilelang/cache", False)
    assert (found.exists, found.writable, found.files, found.bytes) == (False, True, 0, 0)
    assert list(tmp_path.iterdir()) == []  # looking makes nothing


@pytest.mark.parametrize("inside", ["", "/more"])
def test_a_folder_that_cannot_be_made(tmp_path, inside):
    (tmp_path / "file").write_text("")
    found = one("DG_JIT_CACHE_DIR", {"DG_JIT_CACHE_DIR": f"{tmp_path}/file{inside}"})
    assert (found.exists, found.writable) == (False, False)


def test_a_link_that_leads_nowhere(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    found = one("DG_JIT_CACHE_DIR", {"DG_JIT_CACHE_DIR": f"{tmp_path}/link/x"})
    assert (found.exists, found.writable, found.free_bytes) == (False, False, None)


def test_a_large_cache_is_not_counted_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_places, "MOST_FILES", 3)
    for index in range(4):
        (tmp_path / str(index)).write_bytes(b"xx")
    found = one("QUACK_CACHE_DIR", {"QUACK_CACHE_DIR": str(tmp_path)})
    assert (found.files, found.bytes, found.complete) == (3, 6, False)


MOUNTS = r"""
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
35 21 0:30 / /home rw,relatime shared:5 master:2 - nfs4 server:/home rw,vers=4.2
36 35 0:31 / /home/u/local rw - xfs /dev/sdb1 rw
37 21 0:32 / /with\040space rw - tmpfs none rw
38 21 0:33 / /twice rw - ext4 /dev/sdc1 rw
39 21 0:34 / /twice rw - lustre mgs@tcp:/var/tmp rw
nonsense
"""


def test_the_file_system_of_a_path(tmp_path, monkeypatch):
    mounts = cache_places.parse_mounts(MOUNTS)
    assert mounts[0] == ("/home/u/local", "xfs")
    assert ("/with space", "tmpfs") in mounts
    kinds = {
        path: cache_places._filesystem(Path(path), mounts)
        for path in ("/home/u/.triton", "/home/u/local/x", "/homes", "/twice/a", "/tmp/a")
    }
    assert kinds == {
        "/home/u/.triton": "nfs4",
        "/home/u/local/x": "xfs",
        "/homes": "ext4",
        "/twice/a": "lustre",
        "/tmp/a": "ext4",
    }
    assert cache_places._filesystem(Path("/x"), []) == ""


def test_a_shared_home_is_told(tmp_path, monkeypatch):
    real = str(tmp_path.resolve())
    monkeypatch.setattr(cache_places, "_mounts", lambda: [(real, "nfs4"), ("/", "ext4")])
    found = one("DG_JIT_CACHE_DIR", {"HOME": str(tmp_path)})
    assert (found.filesystem, found.shared) == ("nfs4", True)


def test_a_user_without_a_home(monkeypatch):
    """As in a container that runs under any number: no HOME, no entry among the users."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 987_654_321)
    assert str(cache_places.place("DG_JIT_CACHE_DIR", {})) == "~/.deep_gemm"  # in this folder


def test_without_any_temporary_folder(monkeypatch):
    def none():
        raise FileNotFoundError("No usable temporary directory")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert str(cache_places.place("QUACK_CACHE_DIR", HOME | {"TMPDIR": ""})) == "/tmp/u/quack_cache"


@pytest.mark.parametrize("path", ["loop", "loop/below", "x" * 300, "y/" * 3000, "\udcff"])
def test_a_folder_that_cannot_be_looked_at_is_told_of(path, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    environment = HOME | {"TRITON_CACHE_DIR": f"{tmp_path}/{path}"}
    found = {one.variable: one for one in cache_places.cache_folders(environment)}
    cache = found["TRITON_CACHE_DIR"]
    assert (cache.exists, cache.files, cache.bytes, cache.complete) == (False, 0, 0, True)
    assert cache.writable is (path == "\udcff")  # which can be made
    assert cache.path == str(Path(f"{tmp_path}/{path}")).replace("\udcff", r"\xff")


def test_a_temporary_folder_that_is_none_is_not_used():
    found = cache_places.place("QUACK_CACHE_DIR", HOME | {"TMPDIR": "/nowhere"})
    assert str(found) == f"{tempfile.gettempdir()}/u/quack_cache"
