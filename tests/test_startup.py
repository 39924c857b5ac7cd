"""The one call at start-up: order, switch, log, failures."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import plan_subjects as subjects
from jitwarm import kernel_warmup, startup
from jitwarm.config import EngineConfig, KernelConfig
from jitwarm.contract import CuTeDSLCompileUnit, compile_units, register_cutedsl_warmup_provider
from jitwarm.contract import kernel_warmup as from_contract
from jitwarm.contract.compile_units import UnitsReport
from jitwarm.errors import RegistrationError, UsageError
from jitwarm.observe.monitor import Monitor
from jitwarm.registry import JitWarmupRegistry

OFF = EngineConfig(kernel_config=KernelConfig(enable_jit_warmup=False))


@pytest.fixture(autouse=True)
def _alone(stub, outside, monkeypatch, caplog):
    monkeypatch.setattr(compile_units, "_providers", [])
    caplog.set_level(logging.INFO, "jitwarm")


class Worker:
    """A runner as engines have them."""

    @JitWarmupRegistry.capture
    def __init__(self, config, *declarations):
        for declaration, *args in declarations:
            declaration.register_warmup(*args)


def worker(*declarations, config=None):
    return Worker(config, *(declarations or ((subjects.Copy, 16),)))


def lines(caplog):
    return [record.getMessage() for record in caplog.records]


def test_everything_registered_is_warmed_and_said(caplog):
    with Monitor("record") as monitor:
        report = kernel_warmup(worker(), jobs=1)
    assert (report.enabled, report.warm.warmed, report.warmed, report.errors) == (True, 2, 2, ())
    assert monitor.count("compile", "load", phase="warm") == 4
    start, end = lines(caplog)
    assert start == "kernel warm-up: 2 keys to make ready"
    assert end == f"kernel warm-up: 2 keys and units ready in {report.seconds:.1f} s"
    assert report.seconds >= report.warm.seconds > 0
    assert from_contract is kernel_warmup


def test_the_registry_is_found(caplog):
    class Outer:
        def __init__(self, runner):
            self.model_runner = runner

    runner = worker()
    for holder in (runner, Outer(runner), runner.jit_warmup_registry):
        assert kernel_warmup(holder, jobs=1).warm.warmed == 2
    with pytest.raises(RegistrationError, match="Outer nor its model_runner has a jit_w"):
        kernel_warmup(Outer(None))


def test_switched_off_only_the_engine_s_own_functions_run(caplog):
    called = []
    unit = Units(called)
    register_cutedsl_warmup_provider(unit)
    runner = worker(config=OFF)
    report = kernel_warmup(runner, legacy=[lambda: called.append("legacy")])
    assert (report.enabled, report.warm.warmed, report.units) == (False, 0, UnitsReport())
    assert {outcome.status for outcome in report.warm.outcomes} == {"skipped"}
    assert called == ["legacy"]
    assert lines(caplog)[0] == (
        "kernel warm-up is switched off: kernel_config.enable_jit_warmup is False"
    )
    assert kernel_warmup(runner, enabled=True, jobs=1).warm.warmed == 2
    assert kernel_warmup(runner, config=EngineConfig(), jobs=1).warm.warmed == 2
    assert kernel_warmup(worker(), config=OFF).warm.warmed == 0


class Units:
    def __init__(self, log):
        self.log = log

    def get_cutedsl_warmup_compile_units(self):
        return [CuTeDSLCompileUnit("unit", 1, lambda: self.log.append("unit"))]


def test_kernels_first_then_units_then_legacy(caplog, monkeypatch):
    from jitwarm.backends.cutedsl import library
    from jitwarm.observe.phases import phase

    monkeypatch.setattr(library, "why_not_here", lambda: "")
    monkeypatch.setattr(library, "compiling", lambda arch: phase("warm"))
    order = []
    unit = Units(order)
    register_cutedsl_warmup_provider(unit)

    def legacy():
        order.append("legacy")

    def progress(done, total, item, seconds):
        order.append(f"{done}/{total}")

    report = kernel_warmup(worker(), jobs=1, legacy=[legacy, legacy], progress=progress)
    assert order == ["1/2", "2/2", "unit", "legacy", "legacy"]
    assert report.warmed == 3
    assert [name.rpartition(".")[2] for name, _ in report.legacy] == ["legacy", "legacy"]
    assert all(seconds >= 0 for _, seconds in report.legacy)


def test_units_that_cannot_run_here_are_one_line(caplog, monkeypatch):
    from jitwarm.backends.cutedsl import library

    monkeypatch.setattr(library, "why_not_here", lambda: "it is not installed")
    unit = Units([])
    register_cutedsl_warmup_provider(unit)
    report = kernel_warmup(worker(), jobs=1)
    assert report.errors == () and report.warmed == 2
    assert lines(caplog)[1] == "1 CuTe DSL compile units skipped: it is not installed"


def fails():
    raise OSError("the engine's own")


def test_everything_is_tried_then_all_failures_are_raised_together(caplog):
    runner = worker((subjects.Raising,), (subjects.Broken,), (subjects.Copy, 16))
    called = []
    with pytest.raises(ExceptionGroup, match="4 kernels or keys could not be warmed") as group:
        kernel_warmup(runner, jobs=1, legacy=[fails, lambda: called.append(1)])
    assert [type(error).__name__ for error in group.value.exceptions] == [
        "LookupError",
        "CompilationError",
        "CompilationError",
        "OSError",
    ]
    assert called == [1]
    assert group.value.exceptions[3].__notes__ == ["while calling fails"]
    said = lines(caplog)
    assert said[1].startswith("kernel warm-up: 4 failures after ") and said[1].endswith(" s")
    assert said[5] == "OSError: the engine's own; while calling fails"
    assert {record.levelname for record in caplog.records[1:]} == {"ERROR"}


def test_failures_may_be_collected(caplog):
    runner = worker((subjects.Raising,), (subjects.Copy, 16))
    report = kernel_warmup(runner, jobs=1, on_error="collect", legacy=[fails])
    assert [type(error) for error in report.errors] == [LookupError, OSError]
    assert report.warm.warmed == 2
    with pytest.raises(UsageError, match="unknown on_error 'ignore'"):
        kernel_warmup(runner, on_error="ignore")


@pytest.mark.parametrize("name", ["make_plan", "warm", "compile_registered_units"])
def test_whatever_ends_one_part_the_others_are_tried(caplog, monkeypatch, name):
    def broken(*args, **kwargs):
        raise ImportError("libfoo.so: cannot open")

    called, parts = [], {"units": 0, "warmed": 2}
    monkeypatch.setattr(startup, name, broken)
    if name != "compile_registered_units":
        parts = {"units": 1, "warmed": 0}
        monkeypatch.setattr(startup, "compile_registered_units", lambda: UnitsReport(found=1))
    runner = worker()
    report = kernel_warmup(runner, jobs=1, on_error="collect", legacy=[lambda: called.append(1)])
    [error] = report.errors
    assert type(error) is ImportError and len(error.__notes__) == 1
    assert called == [1] and len(report.legacy) == 1
    assert {"units": report.units.found, "warmed": report.warm.warmed} == parts
    assert "libfoo.so: cannot open; while " in lines(caplog)[-1]
    with pytest.raises(ExceptionGroup, match="2 kernels or keys could not be warmed") as group:
        kernel_warmup(runner, jobs=1, legacy=[lambda: called.append(2), fails])
    assert [type(error) for error in group.value.exceptions][1:] == [OSError]
    assert called == [1, 2]


BROKEN = """
import logging, sys
logging.disable()
sys.path.insert(0, sys.path.pop(sys.path.index(FOLDER)))  # before the library that is installed
import cute_subjects, plan_subjects
from jitwarm import JitWarmupRegistry, device, kernel_warmup
device.activate("stub", "sm90")
registry = JitWarmupRegistry(None)
with registry.activate():
    cute_subjects.add.register_warmup()
    plan_subjects.Copy.register_warmup(16)
called = []
report = kernel_warmup(registry, on_error="collect", legacy=[lambda: called.append(1)], jobs=2)
print(report.warmed, [type(error.__cause__).__name__ for error in report.errors], called)
"""


def test_a_broken_library_costs_its_own_keys_only(fresh_process, tmp_path):
    (tmp_path / "cutlass").mkdir()
    (tmp_path / "cutlass" / "__init__.py").write_text("raise ImportError('libfoo.so: not found')")
    tests = Path(subjects.__file__).parent
    said = fresh_process(f"FOLDER = {str(tmp_path)!r}{BROKEN}", path=[tmp_path, tests])
    assert said == "2 ['ImportError', 'ImportError'] [1]\n"


def test_options_that_cannot_be_are_refused_before_anything_is_tried():
    for options in ({"depth": "deep"}, {"jobs": 0}):
        with pytest.raises(UsageError):
            kernel_warmup(worker(), on_error="collect", legacy=[fails], **options)


def test_an_early_end_is_said_with_its_seconds(caplog):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kernel_warmup(worker(), jobs=1, legacy=[stop])
    assert lines(caplog)[-1].startswith("kernel warm-up ended early after ")


def test_findings_of_the_plan_are_logged_and_go_to_the_logger_that_is_given(caplog):
    runner = worker((subjects.Fill, [1, True]))
    mine = logging.getLogger("mine")
    mine.setLevel(logging.INFO)
    kernel_warmup(runner, jobs=1, log=mine)
    assert {record.name for record in caplog.records} == {"mine"}
    assert "Triton serves whichever was compiled first to both" in lines(caplog)[0]
    assert caplog.records[0].levelname == "WARNING"


def test_progress_is_logged_now_and_then(caplog, monkeypatch):
    monkeypatch.setattr(startup, "PROGRESS_EVERY_S", 0.0)
    kernel_warmup(worker((subjects.Copy, 16), (subjects.Fill, [1.0])), jobs=1)
    told = [line for line in lines(caplog) if " of " in line]
    assert [line.split(" after")[0] for line in told] == [
        "kernel warm-up: 1 of 3",
        "kernel warm-up: 2 of 3",
    ]
