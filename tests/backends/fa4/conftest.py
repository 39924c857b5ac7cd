"""The library on the stub device sm90, its caches put back after each test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

HOOKS = "jitwarm.backends.fa4.hooks"


@pytest.fixture
def interface(stub, monkeypatch):
    """The library's module with empty caches in memory."""
    pytest.importorskip("flash_attn.cute")
    from jitwarm.backends import sinks
    from jitwarm.backends.fa4 import hooks, launch, library

    if HOOKS not in sinks._HOOKS:
        monkeypatch.setattr(sinks, "_HOOKS", (*sinks._HOOKS, HOOKS))
    from fa4_subjects import caches

    module = library.interface("a test")
    kept = {name: dict(cache.cache) for name, cache in caches(module).items()}
    for cache in caches(module).values():
        cache.cache.clear()
    hooks._watched.clear()
    launch._known.clear()
    yield module
    for name, cache in caches(module).items():
        cache.cache.clear()
        cache.cache.update(kept[name])
