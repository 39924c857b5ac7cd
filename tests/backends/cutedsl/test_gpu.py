"""On a GPU: real launches, real loads, children beside a CUDA context. Processes of their own,
because this one may have the stub device.

    python -m pytest -m gpu tests/backends/cutedsl/test_gpu.py
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cute_subjects as subjects

pytestmark = [pytest.mark.gpu, pytest.mark.cutedsl]
TESTS = Path(subjects.__file__).parent

START = """
import json, threading, warnings
import torch
from jitwarm import JitWarmupRegistry, Monitor, device, make_plan
from jitwarm.warm import warm
import cute_subjects as subjects
from cute_subjects import Key

device.activate("cuda")
torch.ones(1, device="cuda").sum().item()  # a CUDA context is there before anything forks
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()

def planned(kernel):
    registry = JitWarmupRegistry()
    with registry.activate():
        kernel.register_warmup((32, 64, 96, 128))
    return make_plan(registry)

def launch(kernel, n, factor=1.0):
    x = torch.arange(n, dtype=torch.float32, device="cuda")
    y = torch.ones(n, device="cuda")
    out = kernel(x, y, n=n, factor=factor)
    torch.cuda.synchronize()
    assert out is y
    return bool((y == 1 + factor * torch.arange(n, device="cuda")).all())

def seen(monitor):
    return [(event.kind, event.phase) for event in monitor.events]

def say(**said):
    stop.set()
    print(json.dumps(said, default=str))
"""


def run(fresh_process, text):
    return json.loads(fresh_process(START + text, path=[TESTS]).splitlines()[-1])


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_loaded_kernel_launches_with_nothing_left_to_do(fresh_process, jobs):
    said = run(
        fresh_process,
        f"""
kernel = subjects.ScratchKernel()
with Monitor("record") as monitor:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        report = warm(planned(kernel), jobs={jobs})
    warmed = seen(monitor)
with Monitor("error", count_hits=True) as serving:
    right = [launch(kernel, n) for n in (32, 64, 96, 128)]
    right += [launch(kernel, n) for n in (32, 64, 96, 128)]
    launches = list(serving.launches().values())
say(outcomes=[(o.status, o.reason, str(o.error)) for o in report.outcomes], warmed=sorted(warmed),
    right=right, late=seen(serving), launches=launches, ms=[e.ms for e in monitor.events],
    kinds=sorted({{type(e).__name__ for e in kernel._compiled_cache.values()}}),
    key=monitor.events[0].key)
""",
    )
    assert said["outcomes"] == [["warmed", "", "None"]] * 4
    assert said["warmed"] == [["compile", "warm"]] * 4 + [["load", "warm"]] * 4
    assert said["right"] == [True] * 8 and said["late"] == [] and said["launches"] == [2] * 4
    assert all(ms > 0 for ms in said["ms"])
    expected = ["Function"] if jobs == 4 else ["TVMFFIJitCompiledFunctionWithKwargs"]
    assert said["kinds"] == expected


def test_without_a_scratch_launch_the_first_launch_loads_and_is_seen(fresh_process):
    said = run(
        fresh_process,
        """
kernel = subjects.AddKernel()
report = warm(planned(kernel), jobs=2)
with Monitor("error") as serving:
    right = [launch(kernel, n) for n in (32, 64, 32)]
say(reasons=sorted({o.reason for o in report.outcomes}), right=right, late=seen(serving),
    ms=[event.ms for event in serving.events])
""",
    )
    assert said["reasons"] == [
        "Add loads its module at its first launch: the class has no scratch_launch(key)"
    ]
    assert said["right"] == [True] * 3
    assert said["late"] == [["load", "serve"]] * 2 and all(ms > 0 for ms in said["ms"])


def test_a_missing_key_is_refused_twice_and_then_compiled(fresh_process):
    said = run(
        fresh_process,
        """
from jitwarm.errors import CompileRefused
kernel = subjects.AddKernel()
refused = 0
with Monitor("error") as serving:
    for _ in range(2):
        try:
            launch(kernel, 32, 0.5)
        except CompileRefused:
            refused += 1
with Monitor("record") as monitor:
    right = launch(kernel, 32, 0.5)
say(refused=refused, right=right, seen=seen(serving) + seen(monitor))
""",
    )
    assert (said["refused"], said["right"]) == (2, True)
    assert [kind for kind, _ in said["seen"]] == ["refused", "refused", "compile", "load"]


def test_native_functions_load_on_request(fresh_process):
    said = run(
        fresh_process,
        """
kernel = subjects.NativeKernel()
with Monitor("record") as monitor:
    report = warm(planned(kernel), jobs=2)
say(outcomes=[(o.status, o.reason) for o in report.outcomes], seen=sorted(seen(monitor)))
""",
    )
    assert said["outcomes"] == [["warmed", ""]] * 4
    assert said["seen"] == [["compile", "warm"]] * 4 + [["load", "warm"]] * 4
