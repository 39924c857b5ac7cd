"""The hook points: in place while somebody watches, and only then."""

from __future__ import annotations

import pytest
from fa4_subjects import caches

from jitwarm.backends import sinks
from jitwarm.backends.fa4 import hooks, library
from jitwarm.backends.fa4.caches import WatchedCache, WatchedCompiler
from jitwarm.errors import HookPointMissing
from jitwarm.observe.monitor import LateCompileWarning, Monitor

pytestmark = pytest.mark.cutedsl


def is_watched(interface):
    kinds = {type(cache) for cache in caches(interface).values()}
    watched = kinds == {WatchedCache}
    assert watched or WatchedCache not in kinds
    assert isinstance(interface.cute, WatchedCompiler) == watched
    return watched


def test_a_monitor_puts_them_in_and_takes_them_out(interface):
    before = caches(interface)
    compiler = interface.cute
    with Monitor("record"):
        assert is_watched(interface)
        with Monitor("record"):
            assert is_watched(interface)
        assert is_watched(interface)
    assert caches(interface) == before
    assert interface.cute is compiler


def test_a_call_of_ours_outlives_the_monitor(interface):
    monitor = Monitor("record").start()
    with hooks.watching(interface):
        monitor.stop()
        assert is_watched(interface)
    assert not is_watched(interface)


def test_a_cache_that_was_replaced_is_watched_anew(interface, monkeypatch):
    from flash_attn.cute.cache_utils import JITCache

    with hooks.watching(interface) as watched:
        first = watched["_flash_attn_fwd"]
    monkeypatch.setattr(interface._flash_attn_fwd, "compile_cache", JITCache())
    with hooks.watching(interface) as watched:
        assert watched["_flash_attn_fwd"] is not first


def test_without_the_library_nothing_happens(monkeypatch):
    monkeypatch.setattr(library, "imported", lambda: None)
    monkeypatch.setattr(hooks, "_for_sinks", False)
    hooks.install()
    hooks.remove()


def test_a_monitor_that_warns_of_a_failure_at_its_end_takes_them_out(interface):
    """Where warnings are errors, as here."""
    monitor = Monitor("warn").start()
    with pytest.raises(ArithmeticError):
        fail(interface._flash_attn_fwd.compile_cache)
    with pytest.raises(LateCompileWarning, match="failed while serving"):
        monitor.stop()
    assert not is_watched(interface)
    assert [event.kind for event in monitor.events] == ["failed"]


def fail(cache):
    """A launch that raises between its miss and its compile."""
    assert ("a key",) not in cache
    raise ArithmeticError


def test_a_release_without_its_caches_cannot_be_watched(interface, monkeypatch):
    words = r"^fa4 4.*_flash_attn_fwd\.compile_cache is not there"
    with monkeypatch.context() as patch:
        patch.delattr(interface._flash_attn_fwd, "compile_cache")
        with pytest.raises(HookPointMissing, match=words), Monitor("record"):
            pass
    assert not sinks.active()
