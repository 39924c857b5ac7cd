"""The monitor: refusals, warnings, phases, null kernels."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

from jitwarm.backends import launches, sinks
from jitwarm.backends.triton import hooks
from jitwarm.backends.triton.binder import bind
from jitwarm.declare import TensorSpec
from jitwarm.errors import CompileRefused, UsageError
from jitwarm.keys import key_id
from jitwarm.observe import phases
from jitwarm.observe.monitor import LateCompileWarning, Monitor
from jitwarm.plan import PlanKey

pytestmark = pytest.mark.triton
X = TensorSpec("float32")


@triton.jit
def copy(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at, mask=at < n)


def launch(n=17):
    return copy[(1,)](torch.zeros(16), n, BLOCK=16)


def key(n=17):
    return bind(copy, (X, n), {"BLOCK": 16}).text


def kinds(monitor):
    return [event.kind for event in monitor.events]


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


def test_a_refused_launch_leaves_no_trace(stub, triton_cache, monkeypatch):
    hooked = []
    monkeypatch.setattr(
        triton.knobs.runtime, "jit_cache_hook", lambda **given: hooked.append(given)
    )
    with Monitor("error", rank=2) as monitor:
        monitor.step, monitor.request = 7, "request 9"
        before = files(triton_cache)
        for _ in range(3):
            with pytest.raises(CompileRefused) as refusal:
                launch()
        assert files(triton_cache) == before
        assert copy.device_caches[0][0] == {}
    assert hooked == []
    assert kinds(monitor) == ["refused"] * 3
    event = monitor.events[0]
    assert (event.kernel, event.key, event.key_id) == (f"{__name__}.copy", key(), key_id(key()))
    assert (event.phase, event.step, event.request, event.rank) == ("serve", 7, "request 9", 2)
    assert str(refusal.value) == (
        f"a launch in step 7 needs {key()} [{key_id(key())}], which was not warmed; add it to the "
        "kernel's declaration, or let it compile: Monitor('warn'), on the command line --monitor "
        "warn"
    )


def test_hits_and_warm_ups_pass_where_compiles_are_refused(stub):
    with Monitor("error") as monitor:
        with phases.phase("warm"):
            copy.warmup(X, 17, BLOCK=16, grid=(1,))
            launch(16)
        with pytest.raises(CompileRefused):  # a warm-up while serving stalls as a launch does
            copy.warmup(X, 1, BLOCK=16, grid=(1,))
        launch(17)
        launch(33)
        with pytest.raises(CompileRefused):
            launch(1)
    served = [(event.kind, event.phase) for event in monitor.events]
    assert served == [
        ("compile", "warm"),
        ("compile", "warm"),
        ("load", "warm"),
        ("refused", "serve"),
        ("load", "serve"),
        ("refused", "serve"),
    ]


def test_a_warm_up_after_start_up_is_late(stub, triton_cache):
    with Monitor("error", count_hits=True) as monitor:
        with phases.phase("warm"):
            launch(16)
        monitor.begin_serving()
        monitor.step = 2
        before = files(triton_cache)
        with phases.phase("warm"), pytest.raises(CompileRefused) as refusal:
            launch(17)
        assert files(triton_cache) == before
        with phases.phase("warm"):
            launch(16)
        launch(16)
        assert monitor.launches() == {key(16): 1}  # what a warm-up looks up is no launch
    assert str(refusal.value) == (
        f"a warm-up in step 2 needs {key()} [{key_id(key())}], which was not warmed: "
        f"{__name__}.copy: a warm-up came to this key after start-up was over; warm this key with "
        "the others, before serving begins, or let it compile: Monitor('warn'), on the command "
        "line --monitor warn"
    )
    assert [(event.kind, event.phase, event.step, event.late) for event in monitor.events] == [
        ("compile", "warm", -1, False),
        ("load", "warm", -1, False),
        ("refused", "warm", 2, True),
    ]
    assert [finding.kind for finding in monitor.findings()] == ["MISS"]
    with monitor, phases.phase("warm"):  # a start-up of its own
        launch(17)
    assert kinds(monitor)[3:] == ["compile", "load"]


def test_a_warm_up_after_start_up_is_warned_of_and_gets_null_kernels(stub):
    with Monitor("warn") as monitor, phases.phase("warm"):
        monitor.begin_serving()
        with pytest.warns(LateCompileWarning, match="compile while serving"):
            launch(17)
    copy.device_caches.clear()
    with Monitor("record", null_kernels=True) as monitor, phases.phase("warm"):
        monitor.begin_serving()
        launch(17)
    assert monitor.events == []


def test_every_monitor_hears_of_a_refusal(stub):
    outer, inner, late = Monitor("record"), Monitor("error"), Monitor("record")
    with outer, inner, late, pytest.raises(CompileRefused):
        launch(17)
    assert kinds(outer) == kinds(inner) == kinds(late) == ["refused"]


def test_monitors_count_apart(stub):
    with phases.phase("warm"):
        launch(17)
    with Monitor("record", count_hits=True) as outer, Monitor("record") as deaf:
        launch(17)
        with Monitor("record", count_hits=True) as inner:
            launch(17)
            inner.begin_serving()
            launch(17)
        launch(17)
        assert deaf.launches() == {}
    assert list(inner.launches().values()) == [1]
    assert list(outer.launches().values()) == [4]  # readable after the end


def test_a_binary_on_disk_is_refused_too(stub):
    copy.warmup(X, 17, BLOCK=16, grid=(1,))
    copy.device_caches.clear()
    with Monitor("error"), pytest.raises(CompileRefused):
        launch()


def test_after_stop_launches_compile_again(stub):
    with Monitor("error"), pytest.raises(CompileRefused):
        launch()
    assert launch() is not None


def test_a_late_compile_is_warned_of_each_time(stub):
    with Monitor("warn") as monitor:
        monitor.step = 3
        with pytest.warns(LateCompileWarning) as caught:
            [launch(n) for n in (17, 17, 16)]
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == 2
    assert texts[0].startswith("compile while serving (")
    assert {warning.filename for warning in caught} == {__file__}  # where the launch stands
    assert texts[0].endswith(f"step 3): {key()} was not warmed")
    assert kinds(monitor) == ["compile", "load"] * 2


def test_warm_ups_are_not_warned_of(stub):
    with Monitor("warn") as monitor, phases.phase("warm"):
        launch()
    assert monitor.count(phase="warm") == 2


def test_off_watches_nothing(stub):
    with Monitor("off") as monitor:
        launch()
    assert monitor.events == []


def test_unknown_modes_are_an_error():
    with pytest.raises(UsageError, match="unknown monitor mode 'loud': use one of off, warn"):
        Monitor("loud")


def test_events_are_counted_by_kind_and_phase(stub):
    with Monitor("record") as monitor:
        copy.warmup(X, 17, BLOCK=16, grid=(1,))
        launch(17)
        with phases.phase("capture"):
            launch(16)
    assert (monitor.count(), monitor.count("compile"), monitor.count("load")) == (4, 2, 2)
    assert monitor.count("compile", "load", phase="capture") == 2
    assert monitor.count("load", phase="warm") == 0
    with pytest.raises(UsageError, match="no event is of kind 'refusal': use compile, .*, refused"):
        monitor.count("refusal")


def test_the_call_site_is_the_launch(stub):
    with Monitor("record") as monitor:
        launch()
    for event in monitor.events:
        assert event.site.startswith(f"{__name__}.launch:")


def test_starting_twice_and_stopping_twice_is_harmless(stub):
    monitor = Monitor("record").start().start()
    launch()
    monitor.stop()
    monitor.stop()
    assert kinds(monitor) == ["compile", "load"]


def test_a_monitor_that_is_entered_again_watches_to_its_outermost_end(stub):
    with Monitor("record") as monitor:
        with monitor as same:
            launch(17)
        assert same is monitor
        launch(16)
        with monitor, pytest.raises(ZeroDivisionError), monitor:
            1 / 0  # noqa: B018
        launch(1)
    assert kinds(monitor) == ["compile", "load"] * 3
    assert not sinks.active()
    with monitor:
        launch(2**31)
    assert kinds(monitor) == ["compile", "load"] * 4
    assert not sinks.active()


def test_what_a_refusal_tells_to_use_instead_may_be_said(stub):
    with (
        Monitor("error", to_allow="run with --lenient"),
        pytest.raises(CompileRefused, match="declaration, or let it compile: run with --lenient$"),
    ):
        launch()


def test_a_refusal_that_was_swallowed_is_counted(stub):
    with Monitor("error") as monitor:
        try:
            launch()
        except Exception:
            refused = monitor.count("refused")
    assert (refused, kinds(monitor)) == (1, ["refused"])


def test_a_step_may_end_in_another_task(stub):
    """An async generator is closed by whoever is there: that task's own step stays."""
    seen = []
    with Monitor("record") as monitor:

        async def served():
            with monitor.at(step=1, request="a"):
                yield monitor.step

        async def close(generator):
            with monitor.at(step=2):
                await generator.aclose()
                seen.append((monitor.step, monitor.request))
            seen.append((monitor.step, monitor.request))

        async def main():
            generator = served()
            seen.append(await asyncio.create_task(anext(generator)))
            await asyncio.create_task(close(generator))
            within = served()
            seen.append(await anext(within))
            await asyncio.create_task(within.aclose())  # a copy of this context: it ends there
            seen.append(await anext(served()))

        asyncio.run(main())
        assert monitor.step == -1
    assert seen == [1, (2, ""), (-1, ""), 1, 1]


def test_null_kernels_compile_nothing_and_leave_with_the_monitor(stub, triton_cache):
    with Monitor("record", count_hits=True, null_kernels=True) as monitor:
        launch(17)
        launch(17)
        launch(16)
        assert monitor.launches() == dict(sorted({key(17): 2, key(16): 1}.items()))
        with phases.phase("warm"):
            copy.warmup(X, 1, BLOCK=16, grid=(1,))
    assert [(event.kind, event.phase) for event in monitor.events] == [("compile", "warm")]
    assert len(copy.device_caches[0][0]) == 1  # the warmed one: a real kernel stays
    with Monitor("record") as monitor:
        launch(17)
    assert kinds(monitor) == ["compile", "load"]


def test_a_null_kernel_that_is_kept_at_hand_can_be_loaded_and_launched(stub):
    with Monitor("record", count_hits=True, null_kernels=True) as monitor:
        handle = copy.warmup(X, 17, BLOCK=16, grid=(1,))
        handle._init_handles()
        assert handle[(1,)](X, 17, stream=0) is None
        assert list(monitor.launches()) == [key(17)]
    assert len(copy.device_caches[0][0]) == 0


def test_refusing_needs_a_device_and_says_how_to_have_one(fresh_process):
    text = """
from jitwarm import Monitor
from jitwarm.errors import DeviceError
try:
    Monitor("error").start()
except DeviceError as error:
    print(error)
"""
    assert "call jitwarm.device.activate('cuda'), or ('stub', 'sm90')" in fresh_process(text)


def test_a_monitor_that_cannot_start_leaves_nothing_behind(stub, monkeypatch):
    def no_device():
        raise RuntimeError("0 active drivers")

    monkeypatch.setattr(hooks, "prepay", no_device)
    with pytest.raises(RuntimeError, match="0 active drivers"):
        Monitor("error").start()
    launch(17)  # not refused


def test_a_tuning_is_an_event_and_late_one_is_warned_of():
    with Monitor("warn") as monitor:
        with phases.phase("warm"):
            sinks.tuned("m.k", "m.k[]", 5.0)
        with pytest.warns(LateCompileWarning, match=r"tune while serving \(7.0 ms\): m.k"):
            sinks.tuned("m.k", "m.k[]", 7.0)
    assert [(event.kind, event.phase, event.ms) for event in monitor.events] == [
        ("tune", "warm", 5.0),
        ("tune", "serve", 7.0),
    ]


def test_launches_of_all_backends_are_counted_together(stub):
    with Monitor("record", count_hits=True) as monitor:
        launch(17)
        launches.count("m.other[]{sm_90a}")
        assert monitor.launches() == {key(17): 1, "m.other[]{sm_90a}": 1}
        monitor.begin_serving()
        launches.count("m.other[]{sm_90a}")
        assert monitor.launches() == {"m.other[]{sm_90a}": 1}
    assert monitor.launches() == {"m.other[]{sm_90a}": 1}
    assert launches.counts() == {}


def planned(n=16):
    return PlanKey("Copy", "triton", f"Copy({n})", key(n), "layers.0", 3, {"n": n})


WORDS = "Copy: `n`: warmed as i32 divisible by 16 (16), launched as i32 not divisible by 16 (17)"
ADVICE = (
    "declare this class of `n` too (1, multiples of 16 and all other values are three binaries), "
    "or add `n` to do_not_specialize"
)


def test_a_refusal_that_knows_the_plan_says_what_differs_and_what_to_do(stub):
    with Monitor("error", plan=[planned()]) as monitor, pytest.raises(CompileRefused) as refusal:
        launch(17)
    assert str(refusal.value) == (
        f"a launch needs {key()} [{key_id(key())}], which was not warmed: {WORDS}; {ADVICE}, or "
        "let it compile: Monitor('warn'), on the command line --monitor warn"
    )
    finding = refusal.value.finding
    assert (finding.kind, finding.field, finding.owners) == ("MISS", "n", ("layers.0", "2 more"))
    assert finding.site == monitor.events[0].place
    assert monitor.events[0].values == {"n": 17}


def test_a_plan_may_come_later(stub):
    with Monitor("error") as monitor:
        monitor.plan = [planned()]
        assert monitor.plan == [planned()]
        with pytest.raises(CompileRefused, match="warmed as i32 divisible by 16"):
            launch(17)
    assert [(one.kind, one.kernel) for one in monitor.findings()] == [("MISS", "Copy")]


def test_a_refusal_without_a_plan_compares_with_what_is_in_memory(stub):
    launch(16)
    with Monitor("error"), pytest.raises(CompileRefused) as refusal:
        launch(17)
    assert "launched as i32 not divisible by 16 (17); declare this class" in str(refusal.value)


def test_a_warning_that_knows_the_plan_explains(stub):
    with Monitor("warn", plan=[planned()]), pytest.warns(LateCompileWarning) as caught:
        launch(17)
    [text] = [str(warning.message) for warning in caught]
    assert f"ms): {WORDS} (" in text
    assert text.endswith(f"; {ADVICE} [{key()}]")


def test_a_site_has_its_file_and_a_miss_its_numbers(stub):
    with Monitor("record") as monitor:
        launch(33)
    compiled, loaded = monitor.events
    line = launch.__code__.co_firstlineno + 1
    assert compiled.place == loaded.place == f"{__file__}:{line}"
    assert (compiled.values, loaded.values) == ({"n": 33}, {})


def test_each_thread_has_a_step_and_a_request_of_its_own(stub):
    barrier = threading.Barrier(2, timeout=60)
    blocks = {1: 16, 2: 32}

    def serve(step):
        with monitor.at(step=step, request=f"request {step}"):
            barrier.wait()
            copy[(1,)](torch.zeros(64), 17, BLOCK=blocks[step])
            barrier.wait()
            with monitor.at(step=step + 10):
                assert (monitor.step, monitor.request) == (step + 10, f"request {step}")

    with Monitor("record") as monitor:
        monitor.step, monitor.request = 99, "another"
        copy.device_caches[0], copy.cache_key  # Triton makes neither for two threads at once
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(serve, blocks))
        assert (monitor.step, monitor.request) == (99, "another")
        launch(1)
    told = {(f"BLOCK:constexpr={blocks.get(e.step, 16)}" in e.key, e.step, e.request)
            for e in monitor.events}  # fmt: skip
    assert told == {(True, 1, "request 1"), (True, 2, "request 2"), (True, 99, "another")}


def test_a_copied_context_takes_step_and_phase_along(stub):
    with Monitor("record") as monitor:
        with monitor.at(step=5), monitor.capture():
            context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(launch,))
        thread.start()
        thread.join()
    assert {(event.step, event.phase) for event in monitor.events} == {(5, "capture")}


def test_what_happens_in_a_capture_is_unsafe(stub):
    with Monitor("record") as monitor:
        with phases.phase("warm"):
            copy.warmup(X, 17, BLOCK=16, grid=(1,))
        with monitor.capture():
            launch(17)
    assert [(event.kind, event.phase) for event in monitor.events] == [
        ("compile", "warm"),
        ("load", "capture"),
    ]
    [finding] = monitor.findings()
    assert (finding.kind, finding.kernel) == ("CAPTURE-UNSAFE", f"{__name__}.copy")


@pytest.fixture
def recording(monkeypatch):
    """CUDA as it looks while this thread's stream is recording; how often it was asked."""
    asked = []

    def capturing():
        asked.append(1)
        return True

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", capturing)
    return asked


def test_a_recording_stream_is_noticed_even_in_a_warm_up_and_never_asked_of_on_a_hit(
    stub, recording
):
    with Monitor("record", count_hits=True) as monitor:
        with phases.phase("warm"):
            launch(17)
        before = len(recording)
        assert before >= 1
        for _ in range(3):
            launch(17)
    assert len(recording) == before
    assert {event.phase for event in monitor.events} == {"capture"}


def test_a_compile_in_a_recording_is_refused_even_in_a_warm_up(stub, recording):
    with Monitor("error") as monitor, phases.phase("warm"), pytest.raises(CompileRefused):
        launch(17)
    assert [(event.kind, event.phase) for event in monitor.events] == [("refused", "capture")]


@pytest.mark.parametrize(
    "cuda",
    [
        None,
        SimpleNamespace(is_initialized=lambda: False),
        SimpleNamespace(is_initialized=lambda: True),  # of an old torch
    ],
)
def test_cuda_that_cannot_be_asked_records_nothing(monkeypatch, cuda):
    module = ModuleType("torch")
    if cuda is not None:
        module.cuda = cuda
    monkeypatch.setitem(sys.modules, "torch", module)
    assert not phases.is_capturing()
    assert phases.phase_of_event() == "serve"
    monkeypatch.delitem(sys.modules, "torch")
    assert not phases.is_capturing()


def test_a_monitor_may_leave_the_lazy_imports_to_the_first_refusal(stub, monkeypatch):
    monkeypatch.setattr(hooks, "prepay", lambda: 1 / 0)
    with Monitor("error", prepay=False), pytest.raises(CompileRefused):
        launch()


def test_refusals_are_cheap_from_the_first_on(fresh_process, tmp_path):
    """In a fresh process the first refusal imports nothing, with a plan and without."""
    (tmp_path / "subject.py").write_text(
        "import triton, triton.language as tl\n"
        "@triton.jit\n"
        "def copy(x_ptr, n, BLOCK: tl.constexpr):\n"
        "    tl.store(x_ptr + tl.arange(0, BLOCK), n)\n"
    )
    text = """
import sys, time, warnings
warnings.simplefilter("ignore")
import torch
from jitwarm import Monitor, device
from jitwarm.errors import CompileRefused
from subject import copy
device.activate("stub", "sm90")
plan = [f"subject.copy[x_ptr:*fp32/D; n:i32/D; BLOCK:constexpr={b}]{{cuda:90}}" for b in range(85)]
for plan in (None, plan):
    with Monitor("error", plan=plan) as monitor:
        before = set(sys.modules)
        for _ in range(2):
            start = time.perf_counter()
            try:
                copy[(1,)](torch.zeros(16), 17, BLOCK=16)
            except CompileRefused:
                print(f"{(time.perf_counter() - start) * 1e3:.2f} ms", file=sys.stderr)
        print(monitor.count("refused"), monitor.count(), sorted(set(sys.modules) - before))
"""
    done = fresh_process(text, path=[tmp_path], check=False)
    print(done.stderr)
    assert done.stdout.splitlines() == ["2 2 []", "2 2 []"], done.stderr


def test_a_phase_that_another_context_ends_leaves_that_context_alone():
    def generator():
        with phases.phase("warm"):
            yield

    running = generator()
    contextvars.copy_context().run(next, running)
    with phases.phase("capture"):
        running.close()  # entered in the copied context, ended in this one
        assert phases.current_phase() == "capture"
    assert phases.current_phase() == "serve"
