"""What is seen of compiles that are not ours, and that nobody else's wrappers are in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import cute_subjects as subjects
from cute_subjects import Key
from jitwarm.backends import sinks
from jitwarm.backends.cutedsl import hooks, library
from jitwarm.errors import CompileRefused
from jitwarm.judge.coverage import Observed, cover
from jitwarm.observe import phases
from jitwarm.observe.monitor import LateCompileWarning, Monitor

pytestmark = pytest.mark.cutedsl
TESTS = Path(subjects.__file__).parent


@pytest.fixture
def device_code(stub, tmp_path, monkeypatch):
    """Somebody's CuTe DSL code, and nothing of it in memory or on disk."""
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cutedsl"))
    from cutlass.cutlass_dsl import CuTeDSL

    import cute_device

    CuTeDSL._get_dsl().envar.arch = "sm_90a"
    forget()
    return cute_device


def forget():
    from cutlass.cutlass_dsl import CuTeDSL

    cache = CuTeDSL._get_dsl().jit_cache
    for name in ("clear", "reset"):
        if hasattr(cache, name):
            getattr(cache, name)()
            return
    raise AssertionError("no way to empty the compiler's memory")


def points():
    from cutlass.base_dsl.compiler import Compiler
    from cutlass.base_dsl.dsl import BaseDSL

    names = ((BaseDSL, "generate_mlir"), (BaseDSL, "compile_and_cache"), (Compiler, "compile"))
    return [(owner, name, getattr(owner, name)) for owner, name in names]


@pytest.fixture(autouse=True)
def _nothing_stays_behind(device_code):
    before = points()
    yield
    assert points() == before


def vector():
    from cutlass import cute

    return cute.runtime.from_dlpack(torch.ones(8))


def compile_add(device_code, n=32):
    from cutlass import cute

    x = device_code.fake_vector()
    options = "--enable-tvm-ffi"
    return cute.compile(device_code.Add(n, 1.0), x, x, device_code.fake_stream(), options=options)


def kinds(monitor):
    return [event.kind for event in monitor.events]


def test_an_explicit_compile_is_seen_each_time(device_code):
    with Monitor("record") as monitor:
        compile_add(device_code)
        compile_add(device_code)
        compile_add(device_code, 64)
    assert kinds(monitor) == ["compile"] * 3
    one, same, other = monitor.events
    assert one.key == same.key != other.key
    assert one.kernel == "cute_device.Add"
    assert one.key.startswith("cute_device.Add[") and one.key.endswith("]{sm_90a}")
    assert one.site.startswith(f"{__name__}.compile_add:")
    assert set(one.stages) == {"trace", "passes"} and one.ms > sum(one.stages.values()) * 0.9


def test_an_implicit_call_traces_again_each_time(device_code):
    with Monitor("record") as monitor:
        for n in (2, 2, 3):
            device_code.double(vector(), n)
    assert kinds(monitor) == ["compile", "trace", "compile"]
    compiled, traced, other = monitor.events
    assert compiled.key == traced.key != other.key
    assert compiled.kernel == "cute_device.double"
    assert traced.ms > 0 and traced.stages == {"trace": traced.ms}


def test_a_binary_from_disk_is_no_compile(device_code):
    x = torch.ones(8)
    from cutlass import cute

    with Monitor("record") as monitor:
        for _ in range(2):
            device_code.double(cute.runtime.from_dlpack(x), 2)
            forget()
    assert kinds(monitor) == ["compile", "disk_hit"]
    assert "passes" not in monitor.events[1].stages
    assert monitor.events[0].key == monitor.events[1].key
    assert x.tolist() == [4.0, 4.0] + [1.0] * 6


def test_a_late_compile_of_somebody_else_is_refused_each_time(device_code):
    with Monitor("error") as monitor:
        with phases.phase("warm"):
            device_code.double(vector(), 4)
        for _ in range(2):
            with pytest.raises(CompileRefused, match=r"cute_device.Add\[.*sm_90a} \[.*not warmed"):
                compile_add(device_code)
            with pytest.raises(CompileRefused, match="cute_device.double"):
                device_code.double(vector(), 5)
        device_code.double(vector(), 4)
    assert kinds(monitor) == ["compile"] + ["refused"] * 4 + ["trace"]
    device_code.double(vector(), 5)  # the compiler is as it was
    assert compile_add(device_code) is not None


def test_a_late_compile_of_somebody_else_is_warned_of_where_it_is_called(device_code):
    with Monitor("warn"), pytest.warns(LateCompileWarning, match="compile while serving") as caught:
        compile_add(device_code)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_key_replay_cannot_serve_somebody_else_s_code(device_code):
    with Monitor("record", null_kernels=True) as monitor:
        assert compile_add(device_code) is not None
    assert kinds(monitor) == ["compile"]


def test_a_failed_compile_is_one_event(device_code, monkeypatch):
    from cutlass.base_dsl.compiler import Compiler

    def fail(*args, **kwargs):
        raise RuntimeError("no passes today")

    own = subjects.AddKernel()
    with Monitor("record") as monitor:
        monkeypatch.setattr(Compiler, "compile", fail)
        with pytest.raises(Exception, match="ICE"):
            compile_add(device_code)
        with pytest.raises(Exception, match="ICE"):
            own.compile(Key(32))
        monkeypatch.undo()
    assert kinds(monitor) == ["failed", "failed"]
    assert [event.kernel for event in monitor.events] == [
        "cute_device.Add",
        "cute_subjects.AddKernel",
    ]


def test_the_library_s_own_wrap_by_others_stays(device_code):
    from cutlass.base_dsl.dsl import BaseDSL

    first, original = Monitor("record").start(), BaseDSL.generate_mlir
    called = []

    def theirs(*args, **kwargs):
        called.append(1)
        return original(*args, **kwargs)

    native = points()[0][2].__wrapped__
    BaseDSL.generate_mlir = theirs
    device_code.double(vector(), 2)
    first.stop()
    device_code.double(vector(), 2)  # ours pass through below theirs
    with Monitor("record") as second:
        device_code.double(vector(), 2)
    BaseDSL.generate_mlir = native
    assert len(called) == 3
    assert (kinds(first), kinds(second)) == (["compile"], ["trace"])


def test_what_is_imported_later_is_watched_from_begin_serving_on(device_code, monkeypatch):
    monitor = Monitor("record").start()
    hooks.remove()  # as if the library had not been imported when the monitor started
    compile_add(device_code)
    monitor.begin_serving()
    compile_add(device_code)
    monitor.stop()
    assert kinds(monitor) == ["compile"]


def test_our_backend_s_import_of_the_library_is_enough(device_code):
    with Monitor("record") as monitor:
        hooks.remove()
        library.load("a test")
        compile_add(device_code)
    assert kinds(monitor) == ["compile"]


def test_a_library_without_a_hook_point_is_left_alone(device_code, monkeypatch):
    from cutlass.base_dsl.dsl import BaseDSL

    before = points()
    monkeypatch.delattr(BaseDSL, "compile_and_cache")
    with pytest.raises(AttributeError, match="compile_and_cache"):
        Monitor("record").start()
    monkeypatch.undo()
    assert points() == before and not sinks.active()


def test_coverage_counts_what_somebody_else_compiles(device_code):
    with Monitor("record", count_hits=True) as monitor:
        with phases.phase("warm"):
            compile_add(device_code)
        compile_add(device_code, 64)
        device_code.double(vector(), 2)
    judged = cover([], [], Observed(0, 1, monitor.launches(), monitor.events))
    assert (judged.needed, judged.missed) == (2, 2)
    assert {miss.kernel for miss in judged.misses} == {"cute_device.Add", "cute_device.double"}
    assert {miss.finding.kind for miss in judged.misses} <= {"UNDECLARED", "MISS"}


SEEN = """
import sys
from jitwarm import device
from jitwarm.observe.monitor import Monitor
device.activate("stub", "sm90")
import torch
import cute_device
from cutlass import cute
from cutlass.cutlass_dsl import CuTeDSL
CuTeDSL._get_dsl().envar.arch = "sm_90a"
with Monitor("record") as monitor:
    cute_device.double(cute.runtime.from_dlpack(torch.ones(8)), 2)
print(monitor.events[0].key)
"""


def test_the_key_is_the_same_in_another_process(device_code, fresh_process):
    with Monitor("record") as monitor:
        device_code.double(vector(), 2)
    assert fresh_process(SEEN, path=[TESTS]) == monitor.events[0].key + "\n"
