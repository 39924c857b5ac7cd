"""The work of each recipe, and object files from a child into the library's caches."""

from __future__ import annotations

import fcntl
import json
import threading
from pathlib import Path

import pytest
from fa4_subjects import PLAIN_TEXT, varlen

from jitwarm import keys
from jitwarm.backends.fa4 import children
from jitwarm.backends.fa4.backend import _missing
from jitwarm.backends.fa4.keytext import MAIN
from jitwarm.backends.fa4.recipe import FA4Recipe
from jitwarm.declare import TensorSpec

pytestmark = pytest.mark.cutedsl


def many(dtype):
    """A batch of 300: it needs two helpers, the same for any dtype."""
    starts = TensorSpec("int32", shape=(301,))
    plain = dict(varlen(tokens=300, dtype=dtype).arguments)
    return FA4Recipe(tuple((plain | {"cu_seqlens_q": starts, "cu_seqlens_k": starts}).items()))


class Compiler:
    """Stands for the compiler: takes no time, counts, and fails where `fails` says so."""

    def __init__(self, monkeypatch):
        from cutlass import cute

        self.compiled = 0
        self.fails = ""  # in the name of a kernel's class
        monkeypatch.setattr(cute, "compile", self)
        monkeypatch.setattr(
            cute.runtime, "load_module", lambda path, enable_tvm_ffi: type("M", (), {"func": path})
        )

    def __call__(self, kernel, *_args, **_kwargs):
        self.compiled += 1
        if self.fails and self.fails in type(kernel).__name__:
            raise ArithmeticError
        return self

    def export_to_c(self, path, function_name):
        assert function_name == "func"
        Path(path).write_text("object code")


@pytest.fixture
def compiler(interface, monkeypatch):
    return Compiler(monkeypatch)


def test_a_kernel_that_two_calls_need_is_compiled_once(interface, compiler, tmp_path):
    first, second = many("float16"), many("bfloat16")
    work = children.work_of([first, second, first])
    assert len(work) == 2
    assert not interface._flash_attn_fwd.compile_cache.cache
    assert [len(each.compiles) for each in work.values()] == [3, 3]
    paths = [children.compile_work(each, tmp_path) for each in work.values()]
    assert compiler.compiled == 4
    children.take_over(work[second.canonical()], paths[1])
    assert not _missing(second)
    assert [text for text, _ in _missing(first)] == [MAIN]


def test_a_child_that_fails_takes_no_helper_from_others(compiler, tmp_path):
    first, second = many("float16"), many("bfloat16")
    work = children.work_of([first, second])
    compiler.fails = "FlashAttentionForward"
    with pytest.raises(ArithmeticError):
        children.compile_work(work[first.canonical()], tmp_path)
    assert compiler.compiled == 1
    compiler.fails = ""
    path = children.compile_work(work[second.canonical()], tmp_path)
    children.take_over(work[second.canonical()], path)
    assert not _missing(second)


def test_whoever_wants_a_kernel_waits_for_who_compiles_it(compiler, tmp_path, monkeypatch):
    work = children.work_of([varlen()])[varlen().canonical()]
    flock, asked = fcntl.flock, threading.Event()

    def noted(*what):
        asked.set()
        flock(*what)

    with children._alone(tmp_path / f"{keys.key_id(PLAIN_TEXT)}.o.lock"):
        monkeypatch.setattr(fcntl, "flock", noted)
        other = threading.Thread(target=children.compile_work, args=(work, tmp_path), daemon=True)
        other.start()
        assert asked.wait(60)
        other.join(0.2)
        assert other.is_alive()
        (tmp_path / f"{keys.key_id(PLAIN_TEXT)}.o").touch()
    other.join(60)
    assert not other.is_alive()
    assert compiler.compiled == 0


def test_where_the_library_has_a_cache_on_disk_that_is_asked(interface, compiler, tmp_path):
    work = children.work_of([varlen()])[varlen().canonical()]
    stored = Stored()
    work.caches[MAIN] = stored
    for _ in range(2):
        assert json.loads(children.compile_work(work, tmp_path).read_text()) == []
    assert compiler.compiled == len(stored.cache) == 1


class Stored:
    """As the library's cache on disk."""

    cache_path = "somewhere"

    def __init__(self):
        self.cache = {}

    def __setitem__(self, key, kernel):
        self.cache[key] = kernel


def test_a_refused_call_gets_no_work(interface):
    assert children.work_of([varlen(dim=264)]) == {}


def test_a_handed_file_becomes_the_kernel(interface, compiler, tmp_path):
    work = children.work_of([varlen()])[varlen().canonical()]
    ((function, key),) = work.compiles
    name = f"{keys.key_id(PLAIN_TEXT)}.o"
    listed = tmp_path / "done.json"
    listed.write_text(json.dumps([]))
    with pytest.raises(KeyError, match=name):
        children.take_over(work, listed)
    listed.write_text(json.dumps([name]))
    children.take_over(work, listed)
    assert interface._flash_attn_fwd.compile_cache.cache[key] == str(tmp_path / name)
    children.take_over(work, listed)  # it is there: nothing happens
    assert function == MAIN
