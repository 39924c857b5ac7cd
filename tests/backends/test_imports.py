"""Imports are noticed, and nothing else about them changes."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from importlib.machinery import BuiltinImporter, SourceFileLoader

import pytest

from jitwarm.backends import imports
from jitwarm.backends.imports import ImportWatch

NAMES = ("jw_late", "jw_other", "jw_broken")


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """`jw_late` and `jw_other` can be imported, `jw_broken` raises in the middle."""
    (tmp_path / "jw_late.py").write_text(
        "from jitwarm.backends import imports\n"
        "during = imports.complete(__name__)\n"
        "END = 1\n"
    )  # fmt: skip
    (tmp_path / "jw_other.py").write_text("END = 1\n")
    (tmp_path / "jw_broken.py").write_text("raise LookupError('no such driver')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def calls(modules):
    """What was complete at each call back; watched are `jw_late` and `jw_broken`."""
    seen, before = [], list(sys.meta_path)
    watch = ImportWatch(("jw_late", "jw_broken"), lambda: seen.append(imports.complete("jw_late")))
    watch.start()
    watch.start()
    assert sys.meta_path == [watch, *before]
    yield seen
    watch.stop()
    assert sys.meta_path == before


def test_a_chosen_module_calls_back_once_when_its_code_has_run(calls):
    assert imports.complete("jw_late") is None
    module = importlib.import_module("jw_late")
    importlib.import_module("jw_late")
    importlib.import_module("jw_other")
    assert calls == [module] and module.END == 1
    assert module.during is None  # half an import is none
    assert imports.complete("jw_late") is module and imports._executed == []


def test_the_module_s_loader_is_its_own_again(calls):
    loader = importlib.import_module("jw_late").__loader__
    assert type(loader) is SourceFileLoader and "exec_module" not in vars(loader)
    assert loader is sys.modules["jw_late"].__spec__.loader
    assert "END = 1" in loader.get_source("jw_late")


def test_looking_for_a_module_is_no_import(calls):
    assert importlib.util.find_spec("jw_late").origin.endswith("jw_late.py")
    assert importlib.util.find_spec("jw_none") is None
    assert calls == [] and "jw_late" not in sys.modules


def test_an_import_that_fails_fails_as_ever(calls):
    with pytest.raises(LookupError, match="no such driver"):
        importlib.import_module("jw_broken")
    assert calls == [] and "jw_broken" not in sys.modules


def test_imports_of_other_threads_call_back_there(modules):
    threads = []
    watch = ImportWatch(["jw_late"], lambda: threads.append(threading.current_thread().name))
    watch.start()
    try:
        thread = threading.Thread(target=importlib.import_module, args=["jw_late"], name="lazy")
        thread.start()
        thread.join()
    finally:
        watch.stop()
    assert threads == ["lazy"]


def test_after_its_end_nothing_is_noticed(modules):
    seen = []
    watch = ImportWatch(["jw_late"], lambda: seen.append(1))
    watch.start()
    found = sys.meta_path
    spec = importlib.util.find_spec("jw_late")
    watch.stop()
    assert found[0] is watch  # an import that is half through this list goes on with the next one
    importlib.import_module("jw_late")
    assert seen == [] and watch not in sys.meta_path
    assert spec.loader is not sys.modules["jw_late"].__loader__


def test_a_loader_that_cannot_be_watched_is_left_alone(monkeypatch):
    class Slots:
        __slots__ = ()
        exec_module = create_module = None

    class Finder:
        @staticmethod
        def find_spec(name, path, target):
            return importlib.util.spec_from_loader(name, Slots()) if name == "jw_slots" else None

    native = BuiltinImporter.exec_module
    watch = ImportWatch(["_abc", "jw_slots"], lambda: None)
    monkeypatch.setattr(sys, "meta_path", [watch, object(), Finder, *sys.meta_path])
    assert watch.find_spec("_abc").loader is BuiltinImporter
    assert BuiltinImporter.exec_module == native
    assert type(watch.find_spec("jw_slots").loader) is Slots


def test_a_loader_that_somebody_changed_keeps_his_change(calls):
    ran = []
    spec = importlib.util.find_spec("jw_other")

    def theirs(module):
        ran.append(module.__name__)

    spec.loader.exec_module = theirs
    watch = ImportWatch(["jw_other"], lambda: calls.append("called"))
    watch._over_exec_module(spec.loader)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert (ran, calls) == (["jw_other"], ["called"])
    assert spec.loader.exec_module is theirs
