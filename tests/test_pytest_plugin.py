"""The pytest plugin, in runs of pytest of its own; it is found through the entry point."""

from __future__ import annotations

import pytest

from jitwarm.monitor import Monitor
from jitwarm.pytest_plugin import JitwarmOfTest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.triton

SUBJECT = """
    import pytest, torch, triton, triton.language as tl

    @triton.jit
    def fill(x_ptr, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(x_ptr + at, at, mask=at < n)

    def launch(n=17):
        return fill[(1,)](torch.zeros(16), n, BLOCK=16)
"""
DEVICE = """
    import pytest

    @pytest.fixture(autouse=True)
    def _device():
        from jitwarm import device
        device.activate("stub", "sm90")
"""


def test_the_fixture_is_the_monitor_to_read_and_to_set():
    monitor = Monitor("off")
    fixture = JitwarmOfTest(monitor)
    fixture.plan, fixture.step = ["m.k[n:i32]{cuda:90}"], 7
    assert (monitor.plan, monitor.step) == (["m.k[n:i32]{cuda:90}"], 7)
    assert (fixture.events, fixture.monitor) == ([], monitor)


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on these tests, in another process."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    quiet = ("-p", "no:cacheprovider", "-W", "ignore:TRITON_DEFAULT_FP_FUSION:UserWarning")

    def run_tests(text, *options, conftest=DEVICE):
        pytester.makepyfile(subject=SUBJECT, test_it=text)
        pytester.makeconftest(conftest)
        return pytester.runpytest_subprocess(*quiet, *options)

    return run_tests


def test_unused_it_imports_nothing_and_wraps_nothing(run):
    result = run(
        """
        import sys

        def test_nothing(request):
            assert not {"torch", "triton", "msgspec", "jitwarm.monitor"} & set(sys.modules)
            assert not request.config.pluginmanager.has_plugin("jitwarm-watching")
            assert request.config.pluginmanager.has_plugin("jitwarm")
        """,
        conftest="",
    )
    result.assert_outcomes(passed=1)
    assert "jitwarm (" not in result.stdout.str()


def test_the_fixture_works_without_the_option(run):
    result = run(
        """
        import pytest
        from subject import launch
        from jitwarm.backends import sinks
        from jitwarm.errors import UnexpectedCompiles

        def test_warm(jitwarm):
            with jitwarm.warm():
                launch(17)
            with jitwarm.expect_no_compiles() as watch:
                launch(33)
            assert watch.compiles == 0
            assert [event.kind for event in jitwarm.events] == ["compile", "load"]
            assert jitwarm.count(phase="warm") == 2

        def test_late(jitwarm):
            with pytest.raises(UnexpectedCompiles, match="divisible by 16"):
                with jitwarm.expect_no_compiles():
                    launch(32)

        def test_nobody_watches_any_more():
            assert not sinks.active()
        """
    )
    result.assert_outcomes(passed=3)
    assert "jitwarm (" not in result.stdout.str()


COMPILING = """
    import pytest, warnings
    from subject import launch

    @pytest.fixture
    def engine():
        launch(1)

    def test_idle(engine):
        launch(1)

    def test_late():
        launch(17)

    def test_warm(jitwarm):
        with jitwarm.warm():
            launch(32)
        launch(16)

    def test_swallowed():
        try:
            launch(2**31)
        except Exception:
            pass

    def test_other_failure(jitwarm):
        assert 1 == 2

    @pytest.mark.jitwarm("record")
    def test_recorded():
        launch(2**40 + 1)
"""


def test_error_fails_the_tests_that_compile_and_no_others(run):
    result = run(COMPILING, "--jitwarm=error", "-rA")
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines_random(
        [
            "PASSED test_it.py::test_idle",
            "FAILED test_it.py::test_late - jitwarm.errors.CompileRefused: *",
            "PASSED test_it.py::test_warm",
            "FAILED test_it.py::test_swallowed - jitwarm.errors.UnexpectedCompiles: 1 *",
            "FAILED test_it.py::test_other_failure - *1 == 2*",
            "PASSED test_it.py::test_recorded",
        ]
    )
    text = result.stdout.str()
    # Compared with what is in memory: what the fixture and the tests before have compiled.
    assert "`n`: warmed as the constant 1, launched as i32 not divisible by 16 (17)" in text
    result.stdout.fnmatch_lines(
        [
            "*= jitwarm (error) =*",
            "2 compiles, 0 disk hits, 2 loads, 0 tunings outside of warm-up, in 4 of 6 tests",
        ]
    )


def test_record_counts_and_fails_nothing(run):
    result = run(COMPILING, "--jitwarm=record")
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*= jitwarm (record) =*",
            "4 compiles, 0 disk hits, 4 loads, 0 tunings outside of warm-up, in 4 of 6 tests",
            "* ms  test_it.py::test_*",
        ]
    )


def test_warn_warns_of_each_late_compile(run):
    result = run(
        """
        from subject import launch

        def test_late():
            launch(17)
        """,
        "--jitwarm=warn",
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*LateCompileWarning: compile while serving*"])


def test_a_test_without_a_device_passes(run):
    result = run("def test_plain(): pass", "--jitwarm=error", conftest="")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["0 compiles, * in 0 of 1 tests"])


def test_a_marker_with_an_unknown_mode_is_a_usage_error(run):
    text = """
        import pytest

        @pytest.mark.jitwarm("loud")
        def test_marked():
            pass
    """
    result = run(text, "--jitwarm=error", "--strict-markers", conftest="")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: test_it.py::test_marked: jitwarm('loud'): use one of off, record, warn, error"]
    )


BROKEN = """
    def pytest_sessionstart():
        from triton.runtime.jit import JITFunction
        del JITFunction._pack_args
"""


def test_a_triton_that_cannot_be_watched_is_an_error_of_each_test(run):
    tests = """
        def test_first(caplog): pass
        def test_second(): pass
    """
    result = run(tests, "--jitwarm=record", conftest=BROKEN)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*HookPointMissing: triton *JITFunction._pack_args is not there*"])
