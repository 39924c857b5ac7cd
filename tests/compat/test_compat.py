"""Kernels in the field's own style, of which only the import lines changed, run as they are."""

from __future__ import annotations

import importlib
import itertools

import pytest
import torch

from jitwarm.config import CacheConfig, EngineConfig, HFConfig, ModelConfig, SchedulerConfig
from jitwarm.contract import JitWarmupRegistry, kernel_warmup
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import make_plan

CONFIG = EngineConfig(
    model_config=ModelConfig(hf_config=HFConfig(head_dim=80)),
    cache_config=CacheConfig(block_size=32),
    scheduler_config=SchedulerConfig(max_num_seqs=64),
)


class Worker:
    """An engine: its runner registers kernels while it is built."""

    def __init__(self, *kernels):
        class Runner:
            @JitWarmupRegistry.capture
            def __init__(self, vllm_config):
                for kernel in kernels:
                    kernel.register_warmup()

        self.model_runner = Runner(CONFIG)
        self.plan = make_plan(self.model_runner.jit_warmup_registry)


@pytest.fixture
def serve(stub, outside):
    """Warm a worker, run its traffic, and return the plan, what was launched, and the events."""

    def run(worker, traffic):
        with Monitor("record", count_hits=True) as monitor:
            report = kernel_warmup(worker)
            assert report.warmed == len(worker.plan.backend_keys)
            monitor.begin_serving()
            before = len(monitor.events)
            traffic()
            return monitor.launches(), monitor.events[before:]

    return run


@pytest.mark.triton
def test_forwarded_keywords_and_strides_of_tensors(serve):
    kernel = importlib.import_module("compat.add_rows").add_rows
    worker = Worker(kernel)
    # Widths 1, 2, 4, ... 64 in blocks of the same size; strides of x: multiples of 16, and others.
    warps = {64: "; num_warps=2"}
    expected = [
        f"compat.add_rows._add_rows_kernel[x_ptr:*fp32/D; x_stride0:i32/{x}; bias:*fp32/D; "
        "bias_stride:constexpr=1; out_ptr:*fp32/D; out_stride_0:i32/D; out_stride_1:constexpr=1; "
        f"width:i32; BLOCK:constexpr={block}; NEGATE:constexpr={negate}]"
        f"{{cuda:90{warps.get(block, '; num_warps=1')}}}"
        for block in (1, 2, 4, 8, 16, 32, 64)
        for negate in (False, True)
        for x in ("D", "")
    ]
    assert list(worker.plan.backend_keys) == expected
    assert worker.plan.funnel.points == 28
    assert worker.plan.items[0].declared == (
        "AddRows(block=1, dtype=torch.float32, negate=False, x_row_stride=16, out_row_stride=16)"
    )

    def traffic():
        out, bias = torch.empty(3, 80), torch.empty(80)
        for width, stride in itertools.product((1, 3, 15, 33, 80), (80, 96, 81, 100)):
            x = torch.empty(3 * stride).as_strided((3, width), (stride, 1))
            assert kernel(x, bias[:width], out[:, :width]) is not None
            kernel(x, bias=bias[:width], out=out[:, :width], negate=True)

    launched, events = serve(worker, traffic)
    assert events == []
    assert sum(launched.values()) == 40
    blocks = ("=1;", "=4;", "=16;", "=64;")
    assert set(launched) == {
        key for key in expected if any(f"BLOCK:constexpr{block}" in key for block in blocks)
    }


@pytest.mark.triton
def test_zipped_rows_predicates_and_cases(serve):
    kernel = importlib.import_module("compat.window_rows").window_rows
    worker = Worker(kernel)
    declared = [
        (64, (8, 0), True, True),  # a window that fits, causal and not
        (64, (8, 8), False, True),
        (128, (64, 0), True, True),  # nothing to the right: causal alone
        (128, (32, 0), True, True),
        (128, (32, 16), False, True),
        # Decode: widths up to the block size, windows below the width.
        *((16, (1, 0), True, True), (32, (1, 0), True, True), (32, (16, 0), True, True)),
        *((16, (1, 0), True, False), (32, (1, 0), True, False), (32, (16, 0), True, False)),
    ]
    assert list(worker.plan.backend_keys) == [
        "compat.window_rows._window_rows_kernel[X:*fp16/D; X_STRIDE:i32; OUT_PTR:*fp16/D; "
        f"lens_ptr:*i32/{'D' if aligned else ''}; WIDTH:constexpr={width}; LEFT:constexpr={left}; "
        f"RIGHT:constexpr={right}; CAUSAL:constexpr={causal}]{{cuda:90}}"
        for width, (left, right), causal, aligned in declared
    ]
    assert worker.plan.funnel.points == 11

    def traffic():
        lens = torch.arange(9, dtype=torch.int32)
        for width, window, causal, aligned in declared:
            x = torch.empty(9, width, dtype=torch.float16)
            out = torch.empty_like(x)
            some = lens if aligned else lens[1:]
            assert kernel(x, out, some, width=width, window=window, causal=causal) is out
            assert kernel(x, out, some[:0], width=width, window=window, causal=causal) is out

    launched, events = serve(worker, traffic)
    assert events == []
    assert launched == dict.fromkeys(sorted(worker.plan.backend_keys), 1)


@pytest.mark.cutedsl
def test_a_cute_dsl_kernel(serve):
    pytest.importorskip("cutlass")
    pytest.importorskip("tvm_ffi")
    kernel = importlib.import_module("compat.scale_vector").scale_vector
    worker = Worker(kernel)
    expected = [
        f"compat.scale_vector.ScaleVectorKernel[factor={factor}; threads={threads}]"
        "{sm_90a; --enable-tvm-ffi}"
        for factor in (0.5, 2.0)
        for threads in (32, 128)
    ]
    assert list(worker.plan.backend_keys) == expected

    def traffic():
        for n, factor in itertools.product((1, 31, 32, 33, 64), (0.5, 2.0)):
            assert kernel(torch.ones(n), factor).shape == (n,)

    launched, events = serve(worker, traffic)
    assert [event.kind for event in events] == []
    assert launched == {expected[0]: 3, expected[1]: 2, expected[2]: 3, expected[3]: 2}


# What a kernel file or an engine imports of the field's contract. `enable_jit_warmup` is a field of
# `kernel_config`; the names of methods are those of the classes.
NAMES = [
    *("JitKernel", "TritonJitKernel", "CuTeDSLJitKernel", "kernel_launcher", "LaunchSpec"),
    *("zip_inputs", "_when", "WarmupIntRange", "WarmupChoices", "TritonWarmupTensor"),
    *("TritonPointerInputVariant", "triton_scalar_specialization_rep", "triton_warmup_inputs"),
    *("triton_kernel_dispatcher_with_warmup", "cutedsl_kernel_launcher", "compile_cutedsl"),
    *("cutedsl_fake_stream", "CuTeDSLCompileUnit", "register_cutedsl_warmup_provider"),
    *("JitWarmupRegistry", "kernel_warmup"),
]
METHODS = [
    *("dispatch", "get_warmup_keys", "compile", "compile_many", "compile_key", "warmup"),
    *("_trace_dispatch", "_expand_warmup_cases", "_get_or_compile", "bind_launch_inputs"),
    *("register_warmup", "_compiled_cache"),
]


def test_every_name_of_the_contract_can_be_imported():
    contract = importlib.import_module("jitwarm.contract")
    assert [name for name in NAMES if not hasattr(contract, name)] == []
    assert [name for name in NAMES if name not in contract.__all__] == []
    kernel = importlib.import_module("compat.add_rows").add_rows
    assert [name for name in METHODS if not hasattr(kernel, name)] == []


@pytest.mark.parametrize("name", ["add_rows", "window_rows"])
def test_warm_up_switched_off_compiles_nothing(stub, outside, name):
    kernel = vars(importlib.import_module(f"compat.{name}"))[name]
    worker = Worker(kernel)
    registry = worker.model_runner.jit_warmup_registry
    assert len(registry) == 1 and registry.config is CONFIG
    off = type("Off", (), {"kernel_config": type("K", (), {"enable_jit_warmup": False})})
    registry.config = off
    with Monitor("record") as monitor:
        report = kernel_warmup(worker)
    assert not report.enabled and report.warmed == 0
    assert monitor.count() == 0
