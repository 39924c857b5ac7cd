"""A listener that a user sets while we watch keeps being called, and takes nothing from us."""

from __future__ import annotations

import pytest
import torch
from launch_subjects import scale
from triton import knobs

from jitwarm.observe.monitor import Monitor

pytestmark = pytest.mark.triton


def launch():
    x = torch.zeros(16)
    scale[(1,)](x, x, 17, BLOCK=16)
    scale.device_caches.clear()


def test_with_a_listener_set_later_a_disk_hit_is_no_compile(stub, monkeypatch):
    monkeypatch.setattr(knobs.compilation, "listener", None)
    hits = []
    with Monitor("record") as monitor:
        knobs.compilation.listener = lambda **given: hits.append(given["cache_hit"])
        launch()
        launch()
    assert hits == [False, True]
    assert [event.kind for event in monitor.events] == ["compile", "load", "disk_hit", "load"]
