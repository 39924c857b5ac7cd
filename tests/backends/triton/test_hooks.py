"""What is seen of Triton at work, and that nobody else's hooks are in the way of ours or gone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import launch_catalogue as catalogue
import pytest
import torch
import triton
from launch_subjects import broken, scale, tuned
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from jitwarm.backends.triton.binder import bind
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import CompileRefused
from jitwarm.observe import phases
from jitwarm.observe.monitor import Monitor

pytestmark = pytest.mark.triton
X = TensorSpec("float32")
POINTS = (
    (JITFunction, "_pack_args"),
    (JITFunction, "_do_compile"),
    (CompiledKernel, "_init_handles"),
)


def launch(n=17):
    x = torch.zeros(16)
    return scale[(1,)](x, x, n, BLOCK=16)


def kinds(monitor):
    return [event.kind for event in monitor.events]


@pytest.fixture
def monitor(stub):
    with Monitor("record") as watching:
        yield watching


@pytest.fixture(autouse=True)
def _nothing_stays_behind():
    before = [getattr(owner, name) for owner, name in POINTS]
    knobs.compilation.listener = None
    yield
    assert [getattr(owner, name) for owner, name in POINTS] == before
    assert knobs.compilation.listener is None


def test_a_compile_then_a_load_then_nothing(monitor):
    launch()
    launch(33)
    compiled, loaded = monitor.events
    assert (compiled.kind, loaded.kind) == ("compile", "load")
    expected = bind(scale, (X, X, 17), {"BLOCK": 16}).text
    assert [event.key for event in monitor.events] == [expected, expected]
    assert [event.kernel for event in monitor.events] == ["launch_subjects.scale"] * 2
    assert set(compiled.stages) == {"init", "ttir", "ttgir", "llir", "ptx", "cubin", "store"}
    assert loaded.stages == {}
    assert compiled.ms > sum(compiled.stages.values()) * 0.5 > 0


def test_a_binary_from_disk_is_no_compile(monitor):
    launch()
    scale.device_caches.clear()
    launch()
    assert kinds(monitor) == ["compile", "load", "disk_hit", "load"]
    assert monitor.events[2].stages == {}


def test_another_spelling_of_the_options_is_a_disk_hit_of_the_same_key(monitor):
    x = torch.zeros(16)
    scale[(1,)](x, x, 17, BLOCK=16)
    scale[(1,)](x, x, 17, BLOCK=16, num_warps=4)
    assert kinds(monitor) == ["compile", "load", "disk_hit", "load"]
    assert len({event.key for event in monitor.events}) == 1


def test_warmup_compiles_and_does_not_load(monitor):
    with phases.phase("warm"):
        scale.warmup(X, X, 17, BLOCK=16, grid=(1,))
    assert [(event.kind, event.phase) for event in monitor.events] == [("compile", "warm")]
    launch()
    assert [(event.kind, event.phase) for event in monitor.events[1:]] == [("load", "serve")]


def test_a_failed_compile_is_one_event(monitor):
    with pytest.raises(triton.compiler.errors.CompilationError):
        broken[(1,)](torch.zeros(4), 2)
    assert kinds(monitor) == ["failed"]
    launch()
    assert kinds(monitor) == ["failed", "compile", "load"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_user_s_cache_hook_keeps_working(stub, monkeypatch, when):
    seen = []
    hook = lambda **given: bool(seen.append(given["key"]))
    monitor = Monitor("record")
    if when == "after":
        monitor.start()
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", hook)
    monitor.start()
    launch()
    monitor.stop()
    assert len(seen) == 1
    assert kinds(monitor) == ["compile", "load"]


def test_a_compile_that_a_user_s_hook_stops_is_called_skipped(monitor, monkeypatch):
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", lambda **given: True)
    assert launch() is None
    assert kinds(monitor) == ["skipped"]


class Listener:
    """A user's listener; `following` is the one that it calls in turn."""

    __hash__ = None  # as a dataclass would have it

    def __init__(self, following=None):
        self.following, self.hits = following, []

    def __call__(self, **given):
        self.hits.append(given["cache_hit"])
        if self.following is not None:
            self.following(**given)


def test_a_listener_that_was_there_is_called_and_put_back(stub):
    knobs.compilation.listener = theirs = Listener()
    with Monitor("record") as monitor:
        launch()
    assert knobs.compilation.listener is theirs
    assert (theirs.hits, kinds(monitor)) == ([False], ["compile", "load"])
    knobs.compilation.listener = None


def test_a_listener_set_later_is_chained_and_stays(stub):
    first = knobs.compilation.listener = Listener()
    with Monitor("record") as monitor:
        launch()
        later = knobs.compilation.listener = Listener()
        launch(16)
    assert (first.hits, later.hits) == ([False], [False])
    assert kinds(monitor) == ["compile", "load"] * 2
    assert knobs.compilation.listener is later
    knobs.compilation.listener = None


def test_a_listener_that_calls_ours_in_turn_runs_once(stub):
    first = knobs.compilation.listener = Listener()
    with Monitor("record") as monitor:
        polite = knobs.compilation.listener = Listener(knobs.compilation.listener)
        launch()
        launch(16)
    assert (polite.hits, first.hits) == ([False, False], [False, False])
    assert kinds(monitor) == ["compile", "load"] * 2
    assert knobs.compilation.listener is polite
    launch(1)
    assert (len(polite.hits), len(first.hits)) == (3, 3)
    knobs.compilation.listener = None


def test_triton_s_own_scope_gives_ours_back(stub):
    with Monitor("record") as monitor:
        for n in (17, 16):
            with knobs.compilation.scope():
                knobs.compilation.listener = Listener()
                launch(n)
        launch(1)
    assert kinds(monitor) == ["compile", "load"] * 3


def test_a_listener_that_raises_is_not_silenced(monitor):
    def theirs(**given):
        raise LookupError("theirs")

    knobs.compilation.listener = theirs
    with pytest.raises(LookupError, match="theirs"):
        launch()
    knobs.compilation.listener = None
    assert kinds(monitor) == ["failed"]


def test_a_user_s_own_wrap_of_the_compile_keeps_working(stub):
    calls, triton_s_own = [], JITFunction._do_compile

    def wrap():
        wrapped = JITFunction._do_compile

        def theirs(self, *args, **kwargs):
            calls.append(self)
            return wrapped(self, *args, **kwargs)

        JITFunction._do_compile = theirs

    first = Monitor("record").start()
    wrap()
    launch(17)
    first.stop()
    launch(16)  # ours pass through below theirs
    second = Monitor("record").start()
    launch(1)
    second.stop()
    assert calls == [scale] * 3
    assert (kinds(first), kinds(second)) == (["compile", "load"], ["compile", "load"])
    JITFunction._do_compile = triton_s_own


def test_several_monitors_see_the_same_and_leave_one_by_one(stub):
    with Monitor("record") as outer:
        with Monitor("record", rank=3) as inner:
            launch()
        launch(16)
    launch(1)
    assert (kinds(outer), kinds(inner)) == (["compile", "load"] * 2, ["compile", "load"])
    assert {event.rank for event in inner.events} == {3}


def test_a_preloaded_kernel_has_the_key_of_the_binder(monitor, monkeypatch):
    recorded = []
    monkeypatch.setattr(
        knobs.runtime,
        "jit_cache_hook",
        lambda **given: recorded.append(given["compile"]["specialization_data"]),
    )
    launches = ((X, X, 17), (TensorSpec("float32", aligned=False), X, 16), (X, X, 1))
    for arguments in launches:
        scale.warmup(*arguments, BLOCK=16, grid=(1,))
    catalogue._typed.warmup(x_ptr=X, n=1, m=16, f=1.0, b=True, grid=(1,))
    catalogue._no_n.warmup(x_ptr=X, out_ptr=X, n=1, stride=1, BLOCK=1, grid=(1,))
    catalogue._tuples.warmup(pair=(X, 16, 17, 1), x_ptr=X, grid=(1,))
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", None)
    expected = [event.key for event in monitor.events]
    assert kinds(monitor) == ["compile"] * 6
    monitor.events.clear()
    functions = (scale, scale, scale, catalogue._typed, catalogue._no_n, catalogue._tuples)
    for fn in functions:
        fn.device_caches.clear()
    for fn, data in zip(functions, recorded, strict=True):
        fn.preload(data)
    assert [event.kind for event in monitor.events] == ["disk_hit"] * 6
    assert [event.key for event in monitor.events] == expected


class Opaque:
    """A compile-time value that no two processes would agree on."""


def test_watching_does_not_break_a_launch_with_a_constant_that_is_no_value(monitor):
    catalogue._one[(1,)](torch.zeros(4), VALUE=Opaque())
    assert kinds(monitor) == ["compile", "load"]
    assert f"VALUE:constexpr=<{__name__}.Opaque>" in monitor.events[0].key


def test_constants_that_are_no_json_launch(monitor):
    for name in ("constant enum", "constant tuple", "constant kernel", "constant constexpr kernel"):
        fn, arguments, _ = catalogue.LAUNCHES[name]
        fn[(1,)](torch.zeros(4), VALUE=arguments["VALUE"])
    assert kinds(monitor) == ["compile", "load"] * 4


def test_misses_of_several_threads_are_told_apart(monitor):
    scale.device_caches[0]
    barrier = threading.Barrier(2, timeout=60)

    def compile_one(block):
        barrier.wait()
        scale.warmup(X, X, 17, BLOCK=block, grid=(1,))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_one, (32, 64)))
    expected = {bind(scale, (X, X, 17), {"BLOCK": block}).text for block in (32, 64)}
    assert {event.key for event in monitor.events} == expected
    assert kinds(monitor) == ["compile", "compile"]
    assert all(set(event.stages) >= {"init", "cubin"} for event in monitor.events)


def test_launches_of_an_autotuned_kernel_are_seen(monitor, monkeypatch):
    def benchmark(fn, quantiles=None, **options):
        fn()
        return [1.0, 1.0, 1.0]

    driver = triton.runtime.driver.active
    monkeypatch.setattr(driver, "get_benchmarker", lambda: benchmark, raising=False)
    tuned.__dict__.pop("do_bench", None)
    x = torch.zeros(64)
    tuned[(1,)](x, 17)
    tuned[(1,)](x, 17)
    assert kinds(monitor) == ["compile", "load", "compile", "load", "tune"]
    assert {event.kernel for event in monitor.events} == {"launch_subjects.tuned"}
    blocks = [event.key.partition("BLOCK:constexpr=")[2][:2] for event in monitor.events[:4]]
    assert blocks == ["16", "16", "32", "32"]
    assert [event.in_tuning for event in monitor.events] == [True] * 4 + [False]
    assert [event.configs for event in monitor.events] == [0] * 4 + [2]
    assert [finding.kind for finding in monitor.findings()] == ["AUTOTUNE"]


@pytest.fixture
def timed(stub, monkeypatch):
    """What the autotuner of `tuned` has timed; it has chosen nothing yet."""
    calls = []

    def benchmark(fn, quantiles=None, **_):
        calls.append(fn())
        return [1.0] * 3

    monkeypatch.setattr(triton.runtime.driver.active, "get_benchmarker", lambda: benchmark)
    tuned.cache.clear()
    tuned.__dict__.pop("do_bench", None)
    return calls


def test_a_tuning_is_refused_before_anything_is_compiled_or_timed_each_time(timed):
    x = torch.zeros(64)
    refused = r"has to choose a configuration, .*\{tune\}.*let it choose"
    with Monitor("error") as monitor:
        for _ in range(2):
            with pytest.raises(CompileRefused, match=refused):
                tuned[(1,)](x, 18)
    assert not timed
    assert [(event.kind, event.in_tuning) for event in monitor.events] == [("refused", False)] * 2
    (finding,) = monitor.findings()
    assert finding.kind == "AUTOTUNE"
    assert "was about to time its configurations against each other" in finding.message
    with Monitor("record") as monitor:
        tuned[(1,)](x, 18)
        launch()
    assert len(timed) == 2
    assert kinds(monitor)[-3:-2] == ["tune"]
    assert not any(event.in_tuning for event in monitor.events[-2:])
    with Monitor("error"):
        tuned[(1,)](x, 18)  # chosen by now


def test_a_tuning_is_refused_inside_of_a_capture_as_one(timed):
    with Monitor("error") as monitor, monitor.capture(), pytest.raises(CompileRefused):
        tuned[(1,)](torch.zeros(64), 19)
    (finding,) = monitor.findings()
    assert finding.kind == "CAPTURE-UNSAFE"
    assert "was about to be tuned while a graph was captured" in finding.message
    assert finding.advice == "tune it before the capture"


def test_a_miss_has_the_whole_numbers_of_its_launch(monitor):
    launch(33)
    catalogue._typed[(1,)](torch.zeros(4), 2**40, 16, 1.0, True)
    values = [event.values for event in monitor.events if event.kind == "compile"]
    assert values == [{"n": 33}, {"n": 2**40, "m": 16}]


def test_triton_s_asynchronous_mode_is_no_failure(monitor):
    from triton.runtime._async_compile import AsyncCompileMode

    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        scale.warmup(X, X, 17, BLOCK=16, grid=(1,))
    launch()
    assert kinds(monitor) == ["compile", "load"]
