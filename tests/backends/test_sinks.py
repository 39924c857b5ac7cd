"""The sinks of all backends: who is told, in which order, and what is installed for it."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import threading

import pytest

from jitwarm import backends
from jitwarm.backends import backend_of, launches, sinks
from jitwarm.backends.miss import Miss, being_served, serving
from jitwarm.errors import UsageError


class Sink:
    def __init__(self, answer=None):
        self.answer, self.heard = answer, []

    def on_miss(self, miss):
        self.heard.append(("miss", miss.text))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def on_refused(self, miss):
        self.heard.append(("refused", miss.text))

    def on_compiled(self, miss):
        self.heard.append((miss.kind, miss.text))

    def on_loaded(self, kernel, text, ms):
        self.heard.append(("load", kernel, text, ms))

    def on_tuned(self, kernel, text, ms, configs=0):
        self.heard.append(("tune", kernel, text, ms, configs))


class Hooks:
    """Stands for the hook points of a compiler."""

    MODULE = ""

    def __init__(self, log, name, error=None):
        self.log, self.name, self.error = log, name, error

    def install(self):
        if self.error:
            raise self.error
        self.log.append(f"+{self.name}")

    def remove(self):
        self.log.append(f"-{self.name}")

    def forget(self, sink):
        self.log.append(f"{self.name} forgets")


@pytest.fixture
def log(monkeypatch):
    assert not sinks.active()
    log = []
    hooks = [Hooks(log, "one"), Hooks(log, "two")]
    monkeypatch.setattr(sinks, "_all_hooks", lambda: hooks)
    return log


@pytest.fixture
def attached(log):
    added = []

    def attach(*given):
        for sink in given:
            sinks.attach(sink)
            added.append(sink)
        return given

    yield attach
    for sink in added:
        sinks.detach(sink)
    assert not sinks.active()


def test_hooks_come_with_the_first_sink_and_go_with_the_last(log):
    first, second = Sink(), Sink()
    sinks.attach(first)
    sinks.attach(second)
    assert log == ["+one", "+two"] and sinks.active()
    sinks.detach(first)
    assert log[2:] == ["one forgets", "two forgets"] and sinks.active()
    sinks.detach(second)
    assert log[4:] == ["one forgets", "two forgets", "-one", "-two"] and not sinks.active()


def test_one_compiler_without_a_hook_point_leaves_nothing_installed(log, monkeypatch):
    hooks = [Hooks(log, "one"), Hooks(log, "two", AttributeError("no such method"))]
    monkeypatch.setattr(sinks, "_all_hooks", lambda: hooks)
    with pytest.raises(AttributeError, match="no such method"):
        sinks.attach(Sink())
    assert log == ["+one", "-one", "-two"] and not sinks.active()


def test_refresh_installs_for_those_who_watch(log, attached):
    sinks.refresh()
    assert log == []
    attached(Sink())
    del log[:]
    sinks.refresh()
    assert log == ["+one", "+two"]


def test_a_refresh_that_fails_for_one_compiler_serves_the_others(log, attached, monkeypatch):
    attached(Sink())
    hooks = [Hooks(log, "one", AttributeError("no such method")), Hooks(log, "two")]
    monkeypatch.setattr(sinks, "_all_hooks", lambda: hooks)
    del log[:]
    with pytest.raises(AttributeError, match="no such method"):
        sinks.refresh()
    assert log == ["+two"]


@pytest.fixture
def lazy(log, monkeypatch, tmp_path):
    """A compiler that nobody has imported yet; its hooks find it once it is imported."""
    (tmp_path / "jw_lazy.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    class Lazy(Hooks):
        MODULE = "jw_lazy"

        def install(self):
            if "jw_lazy" in sys.modules:
                super().install()

    hooks = Lazy(log, "lazy")
    monkeypatch.setattr(sinks, "_all_hooks", lambda: [Hooks(log, "one"), hooks])
    yield hooks
    sys.modules.pop("jw_lazy", None)


def test_a_compiler_is_watched_from_its_import_on(log, lazy, attached):
    before = list(sys.meta_path)
    first, _ = attached(Sink(), Sink())
    sinks.detach(first)
    del log[:]
    importlib.import_module("jw_lazy")
    assert log == ["+one", "+lazy"]
    assert len(sys.meta_path) == len(before) + 1


def test_nobody_watches_imports_when_the_last_sink_has_left(log, lazy):
    before, sink = list(sys.meta_path), Sink()
    sinks.attach(sink)
    sinks.detach(sink)
    assert sys.meta_path == before
    del log[:]
    importlib.import_module("jw_lazy")
    assert log == []


def test_a_start_that_failed_watches_no_imports(log, monkeypatch):
    before = list(sys.meta_path)
    monkeypatch.setattr(sinks, "_all_hooks", lambda: [Hooks(log, "one", AttributeError("gone"))])
    with pytest.raises(AttributeError, match="gone"):
        sinks.attach(Sink())
    assert sys.meta_path == before


def test_an_import_never_fails_because_of_who_watches(log, lazy, attached, caplog):
    attached(Sink())
    lazy.error = AttributeError("no such method")
    with caplog.at_level(logging.ERROR, "jitwarm"):
        assert importlib.import_module("jw_lazy") is sys.modules["jw_lazy"]
    assert caplog.messages == ["a compiler that was imported just now cannot be watched"]
    assert "no such method" in caplog.text
    with pytest.raises(AttributeError, match="no such method"):
        sinks.refresh()


def test_an_import_waits_for_nobody_who_may_wait_for_it(log, lazy, attached, monkeypatch):
    """Somebody refreshes, and while he holds the lock the compiler is imported elsewhere."""
    attached(Sink())
    inside, imported = threading.Event(), threading.Event()

    class Slow(Hooks):
        def install(self):
            inside.set()
            assert imported.wait(60)
            super().install()

    monkeypatch.setattr(sinks, "_all_hooks", lambda: [lazy, Slow(log, "slow")])
    thread = threading.Thread(target=sinks.refresh)
    thread.start()
    assert inside.wait(60)
    del log[:]
    importlib.import_module("jw_lazy")
    assert log == []  # he was past it
    imported.set()
    thread.join(60)
    assert log == ["+slow", "+lazy", "+slow"] and not sinks._stale


def test_an_import_inside_of_an_install_is_caught_up_with_after_it(
    log, lazy, attached, monkeypatch
):
    class Importing(Hooks):
        def install(self):
            importlib.import_module("jw_lazy")
            super().install()

    attached(Sink())
    monkeypatch.setattr(sinks, "_all_hooks", lambda: [lazy, Importing(log, "importing")])
    del log[:]
    sinks.refresh()
    assert log == ["+importing", "+lazy", "+importing"]


FOREIGN = """
import sys, threading
from jitwarm import Monitor, device
from jitwarm.errors import CompileRefused
device.activate("stub", "sm90")
def use():
    import flash_attn.cute.interface as interface
    from cutlass import cute
    import cute_device
    import torch
    print({type(getattr(interface, name).compile_cache).__name__ for name in FIELDS})
    try:
        cute_device.double(cute.runtime.from_dlpack(torch.ones(8)), 2)
    except CompileRefused:
        print("refused")
with Monitor("error") as monitor:
    from jitwarm.backends.fa4.keytext import FIELDS
    assert not {"cutlass", "flash_attn"} & set(sys.modules)
    monitor.begin_serving()
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
print([(event.kind, event.kernel) for event in monitor.events])
"""


@pytest.mark.cutedsl
def test_libraries_that_are_first_imported_while_serving_are_watched(fresh_process):
    if importlib.util.find_spec("flash_attn") is None:
        pytest.skip("flash-attn-4 is not installed")
    path = str(backends.__file__).partition("jitwarm/backends")[0] + "tests"
    assert fresh_process(FOREIGN, path=[path]).splitlines() == [
        "{'WatchedCache'}",
        "refused",
        "[('refused', 'cute_device.double')]",
    ]


def test_everybody_is_told(attached):
    one, other = attached(Sink(), Sink())
    miss = Miss("k", "k[]", kind="compile")
    assert sinks.ask(miss) is None
    sinks.compiled(miss)
    sinks.loaded("k", "k[]", 1.0)
    sinks.tuned("k", "k[]", 2.0, 3)
    expected = [
        ("miss", "k[]"),
        ("compile", "k[]"),
        ("load", "k", "k[]", 1.0),
        ("tune", "k", "k[]", 2.0, 3),
    ]
    assert one.heard == other.heard == expected


def test_the_first_answer_counts(attached):
    _, answering, other = attached(Sink(), Sink("kernel"), Sink("other kernel"))
    assert sinks.ask(Miss("k", "k[]")) == (answering, "kernel")
    assert other.heard == [("miss", "k[]")]


def test_everybody_hears_of_a_refusal(attached):
    before, _, after = attached(Sink(), Sink(LookupError("not now")), Sink())
    with pytest.raises(LookupError, match="not now"):
        sinks.ask(Miss("k", "k[]"))
    assert before.heard == [("miss", "k[]"), ("refused", "k[]")]
    assert after.heard == [("refused", "k[]")]


def test_a_child_tells_its_own_sink_only(attached, monkeypatch):
    (parents,) = attached(Sink())
    own = Sink()
    with monkeypatch.context() as patch:
        patch.setattr(sinks, "_sinks", ())
        patch.setattr(sinks, "_lock", None)  # as if some thread of the parent had taken it for good
        watching = sys.meta_path[0]
        sinks.only(own)
        assert sys.meta_path.count(watching) == 1
        sinks.loaded("k", "k[]", 1.0)
    assert own.heard == [("load", "k", "k[]", 1.0)] and parents.heard == []


def test_serving_times_a_miss_and_says_how_it_ended():
    outer, inner = Miss("k", "outer"), Miss("k", "inner")
    with serving(outer):
        assert being_served() is outer
        with pytest.raises(ZeroDivisionError), serving(inner):
            1 / (being_served() is not inner)
        assert being_served() is outer
        outer.kind = "disk_hit"
    assert being_served() is None
    assert (outer.kind, inner.kind) == ("disk_hit", "failed")
    assert outer.ms >= inner.ms >= 0
    with serving(Miss("k", "k")) as miss:
        pass
    assert miss.kind == "compile"


def test_launches_are_counted_while_somebody_counts():
    launches.count("k[]")
    assert launches.counts() == {} and not launches.counting()
    launches.start_counting()
    launches.start_counting()
    launches.count("k[]")
    launches.stop_counting()
    launches.count("k[]")
    assert launches.counts() == {"k[]": 2} and launches.counting()
    launches.stop_counting()
    assert launches.counts() == {} and not launches.counting()


def test_a_recipe_names_its_backend():
    class Plain:
        pass

    class Wrong:
        backend = "cutdsl"

    assert backend_of(Plain()).name == "opaque"
    with pytest.raises(UsageError, match=r"Wrong: no backend is called 'cutdsl'.*triton, cutedsl"):
        backend_of(Wrong())
    for name in ("triton", "cutedsl", "opaque"):
        recipe = type("Recipe", (), {"backend": name})()
        assert backend_of(recipe).name == name
        assert backend_of(recipe) is backend_of(recipe)
        assert backends.backend_of(recipe).parallel in ("threads", "processes", "")
