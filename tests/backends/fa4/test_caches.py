"""The watched caches, without a compile: hits, misses, refusals, null kernels, first launches."""

from __future__ import annotations

import threading
import types

import pytest

from jitwarm import device
from jitwarm.backends import launches, sinks
from jitwarm.backends.fa4 import caches, pending
from jitwarm.backends.fa4.caches import WatchedCache
from jitwarm.backends.fa4.launch import forward
from jitwarm.errors import CompileRefused
from jitwarm.observe.monitor import Monitor

FUNCTION = "_compute_blocks_to_batch"
KEY = ()
TEXT = "flash_attn.cute.interface._compute_blocks_to_batch[]{sm_90a}"


class Memory:
    """As the library's cache in memory."""

    def __init__(self):
        self.cache = {}

    def __contains__(self, key):
        return key in self.cache

    def __getitem__(self, key):
        return self.cache[key]

    def __setitem__(self, key, kernel):
        self.cache[key] = kernel


class Disk(Memory):
    """As the library's cache on disk: what is there comes into memory when it is asked for."""

    stored = "kernel from disk"

    def __contains__(self, key):
        self.cache.setdefault(key, self.stored)
        return True


@pytest.fixture
def watched(stub):
    return WatchedCache(FUNCTION, Memory())


@pytest.fixture(autouse=True)
def nothing_pending():
    yield
    pending._pending.clear()


def launch(cache, kernel=lambda *_: "ran"):
    """What a function of the library does."""
    if KEY not in cache:
        cache[KEY] = kernel
    return cache[KEY](1, 2)


def fail(cache):
    """A launch that raises between its miss and its compile."""
    assert KEY not in cache
    raise ArithmeticError


def kinds(monitor):
    return [event.kind for event in monitor.events]


def test_unwatched_it_passes_through(watched):
    assert launch(watched) == "ran"
    assert watched.original.cache.keys() == {KEY}


def test_a_miss_and_its_first_launch(watched):
    with Monitor("record", count_hits=True) as monitor:
        assert launch(watched) == launch(watched) == "ran"
    assert kinds(monitor) == ["compile", "load"]
    assert {event.key for event in monitor.events} == {TEXT}
    assert {event.kernel for event in monitor.events} == {TEXT.partition("[")[0]}
    assert monitor.launches() == {TEXT: 2}


def test_a_kernel_from_disk_is_a_disk_hit(stub):
    cache = WatchedCache(FUNCTION, Disk())
    Disk.stored = lambda *_: "from disk"
    with Monitor("record") as monitor:
        assert launch(cache) == "from disk"
    assert kinds(monitor) == ["disk_hit", "load"]


def test_a_refused_launch_compiles_nothing_and_is_refused_again(watched):
    with Monitor("error") as monitor:
        for _ in range(2):
            with pytest.raises(CompileRefused, match=r"_compute_blocks_to_batch\[\]"):
                launch(watched)
    assert kinds(monitor) == ["refused", "refused"]
    assert not watched.original.cache


def test_a_null_kernel_serves_until_its_monitor_stops(watched):
    with Monitor("record", null_kernels=True, count_hits=True) as monitor:
        assert launch(watched) is None
        assert launch(watched) is None
        assert monitor.launches() == {TEXT: 2}
        assert not watched.original.cache
        sink = next(iter(watched.served.values()))
        assert sink is monitor
        watched.forget(object())
        assert watched.in_memory(KEY)
        watched.forget(monitor)
    assert not watched.in_memory(KEY)
    assert launch(watched) == "ran"


def test_a_compile_that_raises_is_told_as_failed(watched):
    with Monitor("record") as monitor:
        assert KEY not in watched
        assert KEY not in watched  # the library was asked again: the first one came to nothing
        watched[KEY] = "kernel"
    assert kinds(monitor) == ["failed", "compile"]


def test_the_compiler_tells_its_own_failure(watched):
    class Compiler:
        def compile(self, *_args, **_kwargs):
            raise ArithmeticError

    pytest.importorskip("cutlass")
    with Monitor("record") as monitor:
        assert KEY not in watched
        with pytest.raises(ArithmeticError):
            caches.WatchedCompiler(Compiler()).compile("entry")
    assert kinds(monitor) == ["failed"]


def test_the_last_launch_that_failed_is_told_too(watched):
    with Monitor("record") as outer:
        with Monitor("record") as inner:
            with pytest.raises(ArithmeticError):
                fail(watched)
            assert not kinds(inner)  # nobody knows yet
        assert kinds(inner) == kinds(outer) == ["failed"]
    assert kinds(outer) == ["failed"]
    assert not pending._pending


def test_a_launch_that_failed_is_told_at_the_next_one(watched):
    other = WatchedCache("_compute_tile_cumsum", Memory())
    other.original[KEY] = "kernel"
    with Monitor("record") as monitor:
        with pytest.raises(ArithmeticError):
            fail(watched)
        assert KEY in other
        assert kinds(monitor) == ["failed"]


def test_a_launch_that_failed_in_another_thread_is_told(watched):
    def run():
        with pytest.raises(ArithmeticError):
            fail(watched)

    with Monitor("record") as monitor:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert kinds(monitor) == ["failed"]


def test_a_launch_under_way_in_another_thread_has_not_failed(watched):
    asked, go_on = threading.Event(), threading.Event()

    def run():
        assert KEY not in watched
        asked.set()
        assert go_on.wait(60)
        watched[KEY] = "kernel"

    with Monitor("record") as outer:
        with Monitor("record") as inner:
            thread = threading.Thread(target=run)
            thread.start()
            assert asked.wait(60)
        assert not kinds(inner)
        go_on.set()
        thread.join()
    assert kinds(outer) == ["compile"]


def test_a_launch_of_ours_on_a_gpu_tells_its_failure_at_once(watched, monkeypatch):
    library = types.SimpleNamespace(_flash_attn_fwd=lambda q: fail(q))
    monkeypatch.setattr(device, "_active", device.Device("cuda", "sm90", "a GPU", "none"))
    monkeypatch.setattr("jitwarm.backends.fa4.library.interface", lambda who: library)
    with Monitor("record") as monitor:
        with pytest.raises(ArithmeticError):
            forward(q=watched)
        assert kinds(monitor) == ["failed"]


# Loads: first launches.


def test_what_was_launched_before_anybody_watched_is_no_load(watched):
    watched.resume()
    assert launch(watched) == "ran"  # as the scratch launch of a warm-up
    with Monitor("record") as monitor:
        launch(watched)
    assert kinds(monitor) == []


def test_what_the_library_compiled_unwatched_is_no_load(watched):
    watched.original.cache["warmed"] = lambda: "ran"
    watched.pause()
    launch(watched.original)  # past us
    watched.resume()
    with Monitor("record") as monitor:
        launch(watched)
        assert kinds(monitor) == []
        watched["warmed"]()
        assert kinds(monitor) == ["load"]


def test_a_kernel_that_was_dropped_is_loaded_again(watched):
    with Monitor("record") as monitor:
        launch(watched)
        watched.original.cache.clear()
        launch(watched)
    assert kinds(monitor) == ["compile", "load"] * 2


def test_in_a_probe_every_key_passes_for_compiled(watched):
    with Monitor("error") as monitor, caches.probing() as asked:
        assert KEY in watched
    assert asked == [(FUNCTION, KEY)]
    assert not monitor.events
    assert not watched.original.cache


def test_it_looks_like_the_librarys_cache(watched):
    watched[KEY] = "kernel"
    assert watched.cache == {KEY: "kernel"}


def test_launches_are_only_counted_while_somebody_counts(watched):
    launch(watched)
    launches.start_counting()
    try:
        launch(watched)
        assert launches.counts() == {TEXT: 1}
    finally:
        launches.stop_counting()
    assert not sinks.active()
    assert device.current().kind == "stub"
