"""The watched caches, without a compile: hits, misses, refusals, null kernels, first launches."""

from __future__ import annotations

import pytest

from jitwarm import device
from jitwarm.backends import launches, sinks
from jitwarm.backends.fa4 import caches
from jitwarm.backends.fa4.caches import WatchedCache
from jitwarm.errors import CompileRefused
from jitwarm.monitor import Monitor

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
    caches._state.pending = None


def launch(cache, kernel=lambda *_: "ran"):
    """What a function of the library does."""
    if KEY not in cache:
        cache[KEY] = kernel
    return cache[KEY](1, 2)


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
