"""Keys that compile in forked children: the same binaries, whatever happens to a child."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import closing
from pathlib import Path

import pytest

import cute_subjects as subjects
from cute_subjects import Key
from jitwarm.backends import backend_of
from jitwarm.backends.cutedsl import children, exporting
from jitwarm.backends.cutedsl.recipe import CuTeDSLRecipe
from jitwarm.contract import compile_cutedsl
from jitwarm.errors import CompilerCrashed
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.warm import warm
from processes import ends

pytestmark = pytest.mark.cutedsl


@pytest.fixture(autouse=True)
def _alone(stub, outside):
    pass


@pytest.fixture
def reasons(monkeypatch):
    """Why children were ended by this process, by their process ids; empty of one that was not."""
    found, collect = {}, children._collect

    def collected(child, ended):
        found[child.pid] = ended
        return collect(child, ended)

    monkeypatch.setattr(children, "_collect", collected)
    return found


def planned(kernel, *sizes):
    registry = JitWarmupRegistry()
    with registry.activate():
        kernel.register_warmup(sizes or (32, 64, 96))
    return make_plan(registry)


def statuses(report):
    return [outcome.status for outcome in report.outcomes]


def test_children_compile_the_same_binaries(tmp_path, pids, monkeypatch):
    serial, parallel = subjects.AddKernel(), subjects.AddKernel()
    read_back, files = exporting.read_back, {}

    def keep(path):
        files[len(files)] = path.read_bytes()
        return read_back(path)

    monkeypatch.setattr(exporting, "read_back", keep)
    assert warm(planned(serial), jobs=1).warmed == 3
    assert pids == []
    with Monitor("record") as monitor:
        report = warm(planned(parallel), jobs=2)
    assert statuses(report) == ["warmed"] * 3 and len(pids) == 3
    expected = {
        exporting.export(serial._compiled_cache[Key(n)], tmp_path, str(n)).read_bytes()
        for n in (32, 64, 96)
    }
    assert set(files.values()) == expected and len(expected) == 3
    compiled = [event for event in monitor.events if event.kind == "compile"]
    assert {event.key for event in compiled} == {parallel.backend_key(Key(n)) for n in (32, 64, 96)}
    assert len(monitor.events) == 3 and {event.phase for event in compiled} == {"warm"}
    assert all(set(event.stages) == {"trace", "passes"} for event in compiled)
    assert all(event.ms > sum(event.stages.values()) * 0.9 > 0 for event in compiled)
    assert all(outcome.seconds > 0 for outcome in report.outcomes)
    with Monitor("error") as monitor:
        assert parallel("x", "y", n=64) == "y"
    assert monitor.events == []
    assert [type(e.compiled).__name__ for e in parallel._compiled_cache.values()] == [
        "Function"
    ] * 3


def test_a_warm_up_after_start_up_is_refused_before_anything_is_compiled(pids):
    kernel = subjects.AddKernel()
    with Monitor("error", prepay=False) as monitor:
        monitor.begin_serving()
        report = warm(planned(kernel), jobs=2)
    assert statuses(report) == ["failed"] * 3 and pids == []
    assert [event.kind for event in monitor.events] == ["refused"] * 3
    assert [type(one.error).__name__ for one in report.outcomes] == ["CompileRefused"] * 3


def test_what_is_there_needs_no_child(pids):
    kernel = subjects.AddKernel()
    plan = planned(kernel)
    assert warm(planned(kernel, 32), jobs=2).warmed == 1  # a child for one key would gain nothing
    assert pids == []
    assert warm(plan, jobs=2).warmed == 3
    assert len(pids) == 2
    with Monitor("record") as monitor:
        assert warm(plan, jobs=2).warmed == 3
    assert len(pids) == 2 and monitor.events == []


def test_a_killed_child_costs_nothing_but_time(pids):
    kernel = subjects.KilledKernel()
    with Monitor("record") as monitor:
        report = warm(planned(kernel), jobs=2)
    assert statuses(report) == ["warmed"] * 3
    assert len(pids) == 3 and monitor.count("compile") == 3 and monitor.count() == 3
    assert type(kernel._compiled_cache[Key(32)].compiled).__name__ != "Function"  # made here
    assert type(kernel._compiled_cache[Key(64)].compiled).__name__ == "Function"


def test_a_compiler_that_crashes_is_not_let_into_this_process(pids):
    kernel = subjects.CrashingKernel()
    report = warm(planned(kernel), jobs=2)
    assert statuses(report) == ["failed", "warmed", "warmed"]
    assert len(pids) == 4  # it is tried twice
    error = report.failed[0].error
    assert type(error) is CompilerCrashed
    assert str(error).startswith(
        "Crashing(n=32, factor=1.0): the compiler crashed twice (Segmentation fault), each time"
    )


@pytest.mark.parametrize(
    ("limit", "seconds", "reason"),
    [("STALLED_S", 2.0, "used no processor time for 2 s"), ("LONGEST_S", 4.0, "ran for 4 s")],
)
def test_a_child_that_hangs_is_ended(pids, reasons, monkeypatch, limit, seconds, reason):
    monkeypatch.setattr(children, limit, seconds)
    assert statuses(warm(planned(subjects.HangingKernel(), 32, 64), jobs=2)) == ["warmed"] * 2
    assert reasons[pids[0]] == reason


def test_an_error_is_met_at_first_hand_and_costs_no_other_key(pids):
    report = warm(planned(subjects.BrokenKernel()), jobs=2)
    assert statuses(report) == ["failed", "warmed", "warmed"]
    error = report.failed[0].error
    assert type(error) is LookupError and str(error) == "no kernel for 32"
    names = []
    trace = error.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert names[-1] == "kernel"  # the author's own frame


def test_what_cannot_be_handed_over_is_compiled_here(pids):
    kernel = subjects.ByNameKernel()
    assert statuses(warm(planned(kernel, 32, 64), jobs=2)) == ["warmed"] * 2
    assert len(pids) == 2
    kinds = {type(executor.compiled).__name__ for executor in kernel._compiled_cache.values()}
    assert kinds == {"TVMFFIJitCompiledFunctionWithKwargs"}


def test_what_a_compile_of_its_own_keeps_is_kept_in_this_process(pids):
    class Own(subjects.AddKernel):
        def __init__(self):
            self.bytes = {}

        def compile(self, key):
            entry, arguments = self.kernel(key), self.warmup_inputs(key)
            self._compiled_cache[key] = compile_cutedsl(entry, *arguments)
            self.bytes[key] = key.n * 4

    kernel = Own()
    assert statuses(warm(planned(kernel, 32, 64), jobs=2)) == ["warmed"] * 2
    assert kernel.bytes == {Key(32): 128, Key(64): 256} and pids == []
    patched = subjects.AddKernel()
    patched.compile = kernel.compile
    backend = backend_of(CuTeDSLRecipe(patched, Key(32)))
    assert not backend.worth_a_child(CuTeDSLRecipe(patched, Key(96)))
    assert backend.worth_a_child(CuTeDSLRecipe(subjects.AddKernel(), Key(96)))


def test_where_no_process_is_left_keys_compile_here(pids, monkeypatch):
    fork, files = os.fork, len(list(Path("/proc/self/fd").iterdir()))

    def forked():
        if pids:
            raise BlockingIOError("no more processes")
        return fork()

    monkeypatch.setattr(os, "fork", forked)
    assert statuses(warm(planned(subjects.AddKernel()), jobs=2)) == ["warmed"] * 3
    assert len(pids) == 1 and len(list(Path("/proc/self/fd").iterdir())) == files


def test_a_file_that_cannot_be_read_back_is_compiled_here(pids, monkeypatch):
    def unreadable(path):
        raise OSError("torn")

    monkeypatch.setattr(exporting, "read_back", unreadable)
    with Monitor("record") as monitor:
        report = warm(planned(subjects.AddKernel(), 32, 64), jobs=2)
    assert statuses(report) == ["warmed"] * 2
    assert monitor.count("compile") == 2  # told once each: what the children made is not used


def test_a_child_s_end_is_noticed_though_somebody_holds_its_pipe(pids, reasons, monkeypatch):
    held, pipe = [], os.pipe

    def duplicated():
        read, write = pipe()
        held.append(os.dup(write))  # as a process that was forked in between would
        return read, write

    monkeypatch.setattr(os, "pipe", duplicated)
    report = warm(planned(subjects.AddKernel(), 32, 64), jobs=2)
    for end in held:
        os.close(end)
    assert statuses(report) == ["warmed"] * 2
    assert reasons == dict.fromkeys(pids, "")


def test_a_key_whose_options_make_no_tvm_ffi_function_is_compiled_here(pids):
    assert statuses(warm(planned(subjects.NativeKernel(), 32, 64), jobs=2)) == ["warmed"] * 2
    assert pids == []


def test_other_threads_do_not_matter(pids):
    """Python 3.12 warns of forks beside threads, and warnings are errors here."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        report = warm(planned(subjects.AddKernel(), 32, 64), jobs=2)
    finally:
        stop.set()
        thread.join()
    assert statuses(report) == ["warmed"] * 2


def test_whoever_stops_early_ends_the_children(pids, tmp_path, monkeypatch):
    monkeypatch.setattr(children, "STALLED_S", 600.0)  # neither is ended for that
    kernel = subjects.HangingKernel()
    recipes = [CuTeDSLRecipe(kernel, Key(32)), CuTeDSLRecipe(kernel, Key(64))]
    backend = backend_of(recipes[0])
    tasks = [(recipe,) for recipe in recipes]
    with closing(children.compile_in_children(backend, tasks, 2, tmp_path)) as results:
        number, handed = next(results)
        assert number == 1 and handed.seconds > 0
        [path] = handed.paths
        assert path.parent == tmp_path and path.exists()
        assert os.kill(pids[0], 0) is None  # the other one still runs
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_child_ends_with_its_parent(fresh_process, tmp_path):
    note = tmp_path / "pid"
    text = f"""
import os, signal, threading, time
from jitwarm import device
device.activate("stub", "sm90")
import cute_subjects as subjects
from cute_subjects import Key
from jitwarm.backends import backend_of
from jitwarm.backends.cutedsl import children
from jitwarm.backends.cutedsl.recipe import CuTeDSLRecipe
from pathlib import Path
kernel = subjects.HangingKernel()
fork = os.fork
def forked():
    pid = fork()
    if pid:
        Path({str(note)!r}).write_text(str(pid))
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return pid
os.fork = forked
for stream in (1, 2):  # or whoever waits for the end of our output waits for the child, too
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
recipe = CuTeDSLRecipe(kernel, Key(32))
list(children.compile_in_children(backend_of(recipe), [(recipe,)], 1, Path({str(tmp_path)!r})))
"""
    done = fresh_process(text, path=[Path(subjects.__file__).parent], check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert ends(int(note.read_text()))
