"""The executor cache: type-exact, and one lock for each key."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from jitwarm.contract.executors import ExecutorCache


@dataclass(frozen=True)
class Key:
    value: object


def test_mapping_keeps_types_apart():
    cache = ExecutorCache()
    for value in (1, True, 1.0):
        cache[Key(value)] = repr(value)
    assert (len(cache), list(cache.values())) == (3, ["1", "True", "1.0"])
    assert cache[Key(True)] == "True"
    assert [repr(key.value) for key in cache] == ["1", "True", "1.0"]
    assert Key(1.0) in cache
    assert Key(2) not in cache
    assert cache.get(Key(2), "none") == "none"
    del cache[Key(True)]
    assert (Key(True) in cache, Key(1) in cache) == (False, True)
    with pytest.raises(KeyError):
        cache[Key(True)]


def test_another_key_is_not_held_up_and_no_lock_is_left():
    cache = ExecutorCache()
    entered = threading.Event()

    def other():
        with cache.once(Key(2)):
            entered.set()

    with cache.once(Key(1)), cache.once(Key(1)):  # re-entrant
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(60)
        thread.join()
    assert cache._locks == {}
