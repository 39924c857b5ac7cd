"""The driver without a GPU, where a kernel asks more of it than a launch."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.triton


@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at, mask=at < n)


def test_an_autotuner_calls_each_configuration_once_and_takes_the_first(stub):
    called = []
    configs = [
        triton.Config({"BLOCK": block}, pre_hook=lambda given: called.append(given["BLOCK"]))
        for block in (32, 16, 64)
    ]
    tuned = triton.autotune(configs, key=["n"])(fill)
    tuned[(1,)](torch.zeros(64), 17)
    assert called == [32, 16, 64, 32]
    assert tuned.best_config is configs[0]
    assert tuned.configs_timings == {config: [1.0] * 3 for config in configs}


def test_the_benchmarker_has_triton_s_signature(stub):
    benchmark = triton.runtime.driver.active.get_benchmarker()
    calls = []
    assert benchmark(lambda: calls.append(1), quantiles=(0.5, 0.2), warmup=1, rep=1) == [1.0, 1.0]
    assert benchmark(lambda: calls.append(2)) == 1.0
    assert calls == [1, 2]
