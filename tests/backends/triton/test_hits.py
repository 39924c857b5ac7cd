"""Exact counts of launches that no hook of Triton reports."""

from __future__ import annotations

import sys
import threading

import pytest
import torch
from launch_subjects import scale

from jitwarm.backends.triton import hits
from jitwarm.backends.triton.binder import bind
from jitwarm.declare.tensor import TensorSpec
from jitwarm.observe.monitor import Monitor

pytestmark = pytest.mark.triton
X = TensorSpec("float32")


def key(n):
    return bind(scale, (X, X, n), {"BLOCK": 16}).text


def launch(n, times=1):
    x = torch.zeros(16)
    for _ in range(times):
        scale[(1,)](x, x, n, BLOCK=16)


@pytest.fixture
def counting(stub):
    with Monitor("record", count_hits=True, null_kernels=True) as monitor:
        yield monitor


def test_every_launch_counts_the_missing_ones_too(counting):
    launch(17, 3)
    launch(16, 2)
    launch(33, 4)
    assert counting.launches() == {key(17): 7, key(16): 2}


def test_begin_serving_forgets_what_came_before(counting):
    launch(17, 3)
    counting.begin_serving()
    assert counting.launches() == {}
    launch(17)
    assert counting.launches() == {key(17): 1}


def test_a_kernel_that_was_compiled_before_is_counted_from_the_start(stub):
    launch(17)
    with Monitor("record", count_hits=True) as monitor:
        launch(17, 2)
        assert list(monitor.launches().values()) == [2]


def test_clearing_triton_s_caches_loses_no_count(counting):
    launch(17, 3)
    scale.device_caches.clear()
    launch(17, 2)
    assert counting.launches() == {key(17): 5}


def test_triton_gets_a_plain_dict_back_with_everything_in_it(stub):
    with Monitor("record", count_hits=True), Monitor("record", count_hits=True):
        launch(17)
        assert type(scale.device_caches[0][0]) is hits.HitRecorder
    cache = scale.device_caches[0][0]
    assert type(cache) is dict
    assert len(cache) == 1
    assert hits.by_key(hits.look_ups()) == {}
    with Monitor("record") as monitor:
        launch(17)
    assert monitor.events == []


def test_the_inner_of_two_counting_monitors_does_not_stop_the_outer(stub):
    with Monitor("record", count_hits=True, null_kernels=True) as outer:
        with Monitor("record", count_hits=True):
            launch(17)
        launch(17)
        assert outer.launches() == {key(17): 2}


def test_threads_that_launch_together_lose_no_count(counting):
    launch(17)
    counting.begin_serving()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    recorder = scale.device_caches[0][0]
    (in_process,) = recorder
    try:
        threads = [
            threading.Thread(target=lambda: [recorder.get(in_process) for _ in range(20_000)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert counting.launches() == {key(17): 80_000}
