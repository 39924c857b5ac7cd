"""The contract class for CuTe DSL: specifications, one executor a key, refusals, counts."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cute_subjects as subjects
from cute_subjects import Key
from jitwarm.backends.cutedsl import compiling, library
from jitwarm.contract import (
    CuTeDSLJitKernel,
    compile_cutedsl,
    cutedsl_fake_stream,
    cutedsl_kernel_launcher,
    kernel_launcher,
)
from jitwarm.errors import CompileRefused, DeclarationError, NothingStoredError
from jitwarm.observe import phases
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.warm import warm

TARGET = "{sm_90a; --enable-tvm-ffi}"


@pytest.fixture(autouse=True)
def _alone(stub, outside):
    pass


@pytest.fixture
def own(monkeypatch):
    """A kernel that compiles without a compiler."""
    monkeypatch.setattr(library, "is_imported", lambda: True)
    return subjects.OwnCompileKernel()


def kinds(monitor):
    return [(event.kind, event.phase) for event in monitor.events]


def test_the_result_of_a_launch(own):
    assert own(3) == ("result", 3)
    assert own(3, "output") == "output"
    assert own(3, None) is None
    assert own(3, "output", lambda: "final") == "final"
    assert own(3, "output", None) == "output"
    assert own.compiled == [Key(3)]
    assert own._compiled_cache[Key(3)].launches == [(3,)] * 5


def test_the_finaliser_runs_after_the_launch(own):
    order = []
    own(3)
    executor = own._compiled_cache[Key(3)]
    assert own(3, None, lambda: order.append(len(executor.launches))) is None
    assert order == [2]


@pytest.mark.parametrize("rest", [(1, 2, 3), ()])
def test_a_wrong_specification_is_an_error(own, rest):
    class Kernel(subjects.OwnCompileKernel):
        @kernel_launcher
        def __call__(self):
            return (Key(1), (), 1, 2, 3) if rest else [Key(1), ()]

    with pytest.raises(DeclarationError, match=r"Kernel|return \(key, args\), \(key, args, output"):
        Kernel()()


def test_both_names_of_the_launcher_are_one():
    assert cutedsl_kernel_launcher is kernel_launcher
    assert CuTeDSLJitKernel.bind_launch_inputs is False


def test_a_warmed_executor_is_the_one_that_launches(own):
    own.compile_many([Key(1), Key(2)])
    warmed = own._compiled_cache[Key(1)]
    with Monitor("error") as monitor:
        own(1)
        own(2)
    assert warmed.launches == [(1,)] and own.compiled == [Key(1), Key(2)]
    assert kinds(monitor) == [("load", "serve")] * 2  # the first launch of each


def test_an_executor_that_was_replaced_is_launched(own):
    own(1)
    own._compiled_cache[Key(1)] = replaced = subjects.Executor(Key(1))
    own(1)
    del own._compiled_cache[Key(1)]
    own(1)
    assert replaced.launches == [(1,)]
    assert own.compiled == [Key(1), Key(1)]


def test_a_missing_key_is_compiled_at_its_launch_and_seen(own):
    with Monitor("record") as monitor:
        own(1)
        own(1)
    compiled, loaded = monitor.events
    assert kinds(monitor) == [("compile", "serve"), ("load", "serve")]
    text = f"{own.object_path}[n=1; factor=1.0]{{sm_90a}}"  # its own compile: options unknown
    assert {compiled.key, loaded.key, own.backend_key(Key(1))} == {text}
    assert compiled.kernel == loaded.kernel == "cute_subjects.OwnCompileKernel"
    assert compiled.site.startswith(f"{__name__}.test_a_missing_key")
    assert compiled.ms >= 0 and loaded.ms >= 0


def test_keys_are_told_apart_by_type(own):
    own(1)
    own(True)
    own(1.0)
    assert [type(key.n) for key in own._compiled_cache] == [int, bool, float]


def test_a_compile_that_stores_nothing_is_an_error(own):
    own.storing = False
    with pytest.raises(NothingStoredError, match=r"compile\(Key\(n=1.*stored nothing.*\(1,\)"):
        own(1)
    with pytest.raises(RuntimeError):
        own._get_or_compile(Key(1))


def test_a_refused_launch_is_refused_each_time(own):
    with Monitor("error", count_hits=True) as monitor:
        for _ in range(2):
            with pytest.raises(CompileRefused, match=r"OwnCompileKernel.*n=1; factor=1.0.*was not"):
                own(1)
        with phases.phase("warm"):
            own._get_or_compile(Key(1))
        own(1)
        assert monitor.launches() == {own.backend_key(Key(1)): 3}
    assert [kind for kind, _ in kinds(monitor)] == ["refused", "refused", "compile", "load"]
    assert own.compiled == [Key(1)]


def test_a_key_replay_launches_nothing_and_keeps_nothing(own):
    with Monitor("record", count_hits=True, null_kernels=True) as monitor:
        assert own(1) is None
        assert own(1, "output") == "output"
        assert own(1, "output", lambda: "final") == "final"
        own(2)
        launched = {own.backend_key(Key(1)): 3, own.backend_key(Key(2)): 1}
        assert monitor.launches() == launched
    assert own.compiled == [] and monitor.events == [] and len(own._compiled_cache) == 0
    own(1)
    assert own.compiled == [Key(1)]


def test_launches_are_counted_from_begin_serving_on(own):
    own(1)
    with Monitor("record", count_hits=True) as monitor:
        own(1)
        monitor.begin_serving()
        own(1)
        own(1)
        assert monitor.launches() == {own.backend_key(Key(1)): 2}
    own(1)
    assert list(monitor.launches().values()) == [2]


def test_two_threads_that_miss_one_key_compile_it_once(own):
    barrier = threading.Barrier(2, timeout=60)

    def launch():
        barrier.wait()
        return own(1)

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(launch) for _ in range(2)]
        assert [future.result() for future in futures] == [("result", 1)] * 2
    assert own.compiled == [Key(1)]


def test_a_failed_compile_is_an_event_and_is_tried_again(own, monkeypatch):
    def fail(self, key):
        raise LookupError("no")

    with Monitor("record") as monitor:
        monkeypatch.setattr(subjects.OwnCompileKernel, "compile", fail)
        for _ in range(2):
            with pytest.raises(LookupError):
                own(1)
        monkeypatch.undo()
    assert kinds(monitor) == [("failed", "serve")] * 2


def test_the_texts_of_keys():
    first, second = subjects.AddKernel(), subjects.AddKernel()
    one, two = first.backend_key(Key(32, 0.5)), second.backend_key(Key(32, 0.5))
    assert one.endswith(f"[n=32; factor=0.5]{TARGET}")
    assert one.startswith("cute_subjects.AddKernel") and two.startswith("cute_subjects.AddKernel#")
    assert one != two  # each object has executors of its own
    assert subjects.add.backend_key(Key(32)) == (
        f"cute_subjects.AddKernel[n=32; factor=1.0]{TARGET}"
    )

    class Sm100(subjects.AddKernel):
        compile_options = "--enable-tvm-ffi --gpu-arch sm_100a"

    assert Sm100().backend_key(Key(1)).endswith("{sm_100a; --enable-tvm-ffi --gpu-arch sm_100a}")

    class Plain(subjects.AddKernel):
        CompileKey = tuple

    assert Plain().backend_key((1, "a; b")).partition("[")[2] == f"(1, 'a; b')]{TARGET}"


def test_a_plan_of_two_objects_of_one_class_has_a_key_for_each(own):
    other = subjects.OwnCompileKernel()
    registry = JitWarmupRegistry()
    with registry.activate():
        own.register_warmup()
        other.register_warmup()
    plan = make_plan(registry)
    assert len(plan.backend_keys) == 4
    assert {item.backend for item in plan.items} == {"cutedsl"}
    report = warm(plan, jobs=1)
    assert report.warmed == 4
    assert {outcome.reason for outcome in report.outcomes} == {
        "OwnCompile loads its module at its first launch: the class has no scratch_launch(key)"
    }
    assert own.compiled == other.compiled == [Key(1), Key(2)]


def test_a_scratch_launch_loads_a_key_once(own):
    class Scratch(subjects.OwnCompileKernel):
        def scratch_launch(self, key):
            return ("scratch", key.n)

    kernel = Scratch()
    registry = JitWarmupRegistry()
    with registry.activate():
        kernel.register_warmup()
    plan = make_plan(registry)
    with Monitor("record") as monitor:
        assert {outcome.reason for outcome in warm(plan, jobs=1).outcomes} == {""}
        warm(plan, jobs=1)
    assert kernel._compiled_cache[Key(2)].launches == [("scratch", 2)]
    assert kinds(monitor) == [("compile", "warm"), ("load", "warm")] * 2
    with Monitor("record") as monitor:
        kernel(1)
    assert monitor.events == []


def test_the_depth_compiled_loads_nothing(own):
    registry = JitWarmupRegistry()
    with registry.activate():
        own.register_warmup()
    with Monitor("record") as monitor:
        report = warm(make_plan(registry), jobs=1, depth="compiled")
    assert kinds(monitor) == [("compile", "warm")] * 2
    assert {outcome.reason for outcome in report.outcomes} == {""}


class Cute:
    """Stands for the library's module."""

    def __init__(self):
        self.runtime, self.compiled = self, []

    def make_fake_stream(self, *, use_tvm_ffi_env_stream):
        return f"stream {use_tvm_ffi_env_stream}"

    def compile(self, *args, **options):
        self.compiled.append((args, options))
        return "compiled"


@pytest.fixture
def cute(monkeypatch):
    fake = Cute()
    monkeypatch.setattr(library, "load", lambda who, **options: fake)
    monkeypatch.setattr(library, "compiling", lambda arch: contextlib.nullcontext())
    return fake


def test_arguments_are_passed_in_order_and_the_stream_last(cute):
    entry = object()
    got = compile_cutedsl(entry, "x", 2)
    assert isinstance(got, compiling.NothingLaunched) and got.compiled == "compiled"
    compile_cutedsl(entry, options="--opt-level 2", use_tvm_ffi_env_stream=False)
    assert cute.compiled == [
        ((entry, "x", 2, "stream True"), {"options": "--enable-tvm-ffi --gpu-arch sm_90a"}),
        ((entry, "stream False"), {"options": "--opt-level 2 --gpu-arch sm_90a"}),
    ]
    assert cutedsl_fake_stream() == "stream True"
    assert cutedsl_fake_stream(False) == "stream False"


def test_the_class_decides_options_and_stream(cute):
    class Kernel(subjects.AddKernel):
        compile_options = "--enable-tvm-ffi --opt-level 3"
        use_tvm_ffi_env_stream = False

        def kernel(self, key):
            return key

        def warmup_inputs(self, key):
            return ("a", "b")

    kernel = Kernel()
    kernel.compile(Key(1))
    kernel.compile(Key(1))
    [(args, options)] = cute.compiled
    assert args == (Key(1), "a", "b", "stream False")
    assert options == {"options": "--enable-tvm-ffi --opt-level 3 --gpu-arch sm_90a"}
    assert kernel("x", "y", n=1) == "y"


NO_LIBRARY = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cutlass", "tvm_ffi"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
import torch
from jitwarm import JitWarmupRegistry, Monitor, device, make_plan
from jitwarm.warm import warm
import cute_subjects, plan_subjects
device.activate("stub", "sm90")
registry = JitWarmupRegistry()
with registry.activate():
    cute_subjects.add.register_warmup()
    plan_subjects.Copy.register_warmup(16)
plan = make_plan(registry)
with Monitor("record", count_hits=True) as monitor:
    report = warm(plan, jobs=2)
    for outcome in report.outcomes:
        print(outcome.item.kernel, outcome.status, type(outcome.error).__name__, outcome.error)
    plan_subjects.copy[(1,)](torch.zeros(64), 17, BLOCK=16)
    print(sum(monitor.launches().values()) > 0, monitor.count("compile", phase="serve"))
    try:
        cute_subjects.add(1, 2, n=8)
    except Exception as error:
        print(type(error).__mro__[1].__name__, error)
"""


def test_without_the_library_everything_else_works_and_one_line_says_so(fresh_process):
    tests = Path(subjects.__file__).parent
    line = "Add needs nvidia-cutlass-dsl: pip install 'jitwarm[cutedsl]'"
    text = "import warnings; warnings.filterwarnings('ignore', message='TRITON_DEFAULT')\n"
    assert fresh_process(text + NO_LIBRARY, path=[tests]).splitlines() == [
        f"Add failed MissingExtraError {line}",
        f"Add failed MissingExtraError {line}",
        "Copy warmed NoneType None",
        "Copy warmed NoneType None",
        "True 0",
        f"UsageError {line}",
    ]


# From here on the library itself compiles.


@pytest.mark.cutedsl
def test_a_second_compile_is_a_no_op_and_the_executor_is_real():
    kernel = subjects.AddKernel()
    with Monitor("record") as monitor, phases.phase("warm"):
        executor = kernel.compile(Key(32))
        assert kernel.compile(Key(32)) is executor
    assert kinds(monitor) == [("compile", "warm")]
    assert set(monitor.events[0].stages) == {"trace", "passes"}
    assert kernel._compiled_cache[Key(32)] is executor
    assert callable(executor.export_to_c)  # the compiled function behind the launch of nothing
    x = object()
    with Monitor("error") as monitor:
        assert kernel(x, "y", n=32) == "y"  # arguments are not touched
        for _ in range(2):
            with pytest.raises(CompileRefused):
                kernel(x, "y", n=64)
    assert len(kernel._compiled_cache) == 1


@pytest.mark.cutedsl
def test_threads_that_compile_different_keys_get_the_right_ones():
    kernel = subjects.AddKernel()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda n: kernel.compile(Key(n)), [32, 64, 96, 128]))
    names = {key.n: kernel._compiled_cache[key].compiled for key in kernel._compiled_cache}
    assert sorted(names) == [32, 64, 96, 128]
    assert len({id(compiled) for compiled in names.values()}) == 4
