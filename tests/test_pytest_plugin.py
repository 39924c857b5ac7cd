"""The pytest plugin, in runs of pytest of its own; it is found through the entry point."""

from __future__ import annotations

import pytest

from jitwarm.observe.monitor import Monitor
from jitwarm.pytest_plugin import JitwarmOfTest

pytest_plugins = ["pytester"]

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
    monkeypatch.setenv("COLUMNS", "300")  # the reasons of failures are cut to fit
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
            assert not {"torch", "triton", "msgspec", "jitwarm.observe.monitor"} & set(sys.modules)
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

    @pytest.mark.jitwarm(mode="record")
    def test_recorded():
        launch(2**40 + 1)
"""


@pytest.mark.triton
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
    assert "declare this class of `n` too" in text
    assert "let it compile: pytest --jitwarm=warn" in text
    assert "--monitor" not in text
    # Compared with what is in memory: what the fixture and the tests before have compiled.
    assert "`n`: warmed as the constant 1, launched as i32 not divisible by 16 (17)" in text
    result.stdout.fnmatch_lines(
        [
            "*= jitwarm (error) =*",
            "2 compiles, 0 disk hits, 2 loads, 0 tunings, 2 refusals outside of warm-up, in 4 of *",
        ]
    )


@pytest.mark.triton
def test_record_counts_and_fails_nothing(run):
    result = run(COMPILING, "--jitwarm=record")
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*= jitwarm (record) =*",
            "4 compiles, 0 disk hits, 4 loads, 0 tunings, 0 refusals outside of warm-up, in 4 of *",
            "* ms  test_it.py::test_*",
        ]
    )


SET_UPS = """
    import pytest, unittest
    from subject import launch

    @pytest.fixture
    def engine():
        launch(1)
        yield
        launch(2**40 + 1)

    @pytest.fixture
    def factory():
        return lambda: launch(2**31)

    def test_lazy(request):
        request.getfixturevalue("engine")

    def test_lazy_and_late(request):
        request.getfixturevalue("engine")
        launch(17)

    def test_what_a_fixture_returns_is_the_body(factory):
        factory()

    class Case(unittest.TestCase):
        def setUp(self):
            launch(32)
            self.addCleanup(launch, 2**63)

        def tearDown(self):
            launch(2**40 + 16)

        def test_case(self):
            launch(16)

        def test_late_case(self):
            launch(17)

        def test_swallowed_in_a_case(self):
            with self.assertRaises(Exception):
                launch(17)

        @unittest.expectedFailure
        def test_expected_failure(self):
            launch(17)

    class AsyncCase(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self):
            launch(2**62)

        async def test_async_case(self):
            launch(2**62)

        async def test_late_async_case(self):
            launch(17)
"""


def test_set_ups_of_any_kind_are_no_part_of_the_body(run):
    result = run(SET_UPS, "--jitwarm=error", "-rA")
    result.assert_outcomes(passed=3, failed=6)
    result.stdout.fnmatch_lines_random(
        [
            "PASSED test_it.py::test_lazy",
            "FAILED test_it.py::test_lazy_and_late - jitwarm.errors.CompileRefused: *",
            "FAILED test_it.py::test_what_a_fixture_returns_* - jitwarm.errors.CompileRefused: *",
            "PASSED test_it.py::Case::test_case",
            "FAILED test_it.py::Case::test_late_case - jitwarm.errors.CompileRefused: *",
            "FAILED test_it.py::Case::test_swallowed_* - jitwarm.errors.UnexpectedCompiles: 1 *",
            "FAILED test_it.py::Case::test_expected_failure - jitwarm.errors.Un*: 1 refused*",
            "PASSED test_it.py::AsyncCase::test_async_case",
            "FAILED test_it.py::AsyncCase::test_late_async_case - jitwarm.errors.CompileRefused*",
            "*, 6 refusals outside of warm-up, in * of 9 tests",
            "  and * more test*",
        ]
    )


REFUSED = """
    import pytest
    from subject import launch

    def swallowed():
        try:
            launch(17)
        except Exception:
            pass

    def test_skip():
        swallowed()
        pytest.skip("no device")

    def test_xfail():
        swallowed()
        pytest.xfail("known")

    @pytest.mark.xfail(strict=True)
    def test_marked():
        launch(17)

    @pytest.mark.xfail
    def test_marked_and_swallowed():
        swallowed()

    @pytest.mark.xfail(strict=True)
    def test_honest():
        assert 1 == 2

    def test_honest_skip():
        pytest.skip("no device")

    @pytest.mark.jitwarm("record")
    @pytest.mark.xfail(strict=True)
    def test_recorded():
        launch(16)
        assert 1 == 2
"""


def test_neither_a_skip_nor_an_xfail_hides_a_refusal(run):
    result = run(REFUSED, "--jitwarm=error", "-rA")
    result.assert_outcomes(failed=4, xfailed=2, skipped=1)
    result.stdout.fnmatch_lines_random(
        [
            f"FAILED test_it.py::{name} - jitwarm.errors.UnexpectedCompiles: 1 refused compile *"
            for name in ("test_skip", "test_xfail", "test_marked", "test_marked_and_swallowed")
        ]
    )
    assert "4 refusals outside of warm-up, in 5 of 7 tests" in result.stdout.str()


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


@pytest.mark.parametrize(
    "given", ["'loud'", "mode='loud'", "mod='record'", "'record', 'warn'", "'record', mode='off'"]
)
def test_a_marker_with_anything_but_a_mode_is_a_usage_error(run, given):
    text = f"""
        import pytest

        @pytest.mark.jitwarm({given})
        def test_marked():
            pass
    """
    result = run(text, "--jitwarm=error", "--strict-markers", conftest="")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: test_it.py::test_marked: jitwarm({given}): give one mode, of off, record, *"]
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
