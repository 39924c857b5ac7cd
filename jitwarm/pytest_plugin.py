"""pytest: which tests compile kernels, and a fixture to say that none may.

    pytest --jitwarm=record     lines at the end: what was compiled and loaded, in which tests
    pytest --jitwarm=warn       a warning for each compile as well
    pytest --jitwarm=error      a test that compiles outside of a warm-up fails, before the compiler
                                is asked

    def test_decode(jitwarm):
        with jitwarm.warm():
            engine.start()
        with jitwarm.expect_no_compiles():
            engine.step()

A warm-up is `jitwarm.warm()`, and what calls itself one: `registry.warmup()`, `kernel.warmup()`,
`compile_many()`. A test may run one at any time, unless it said `jitwarm.begin_serving()` before.

`error` is about the body of a test. What its fixtures compile is recorded, and passes: those asked
for late (`request.getfixturevalue`) too, and setUp, tearDown and the cleanups of a TestCase. What a
test calls is its body, functions that fixtures returned included. A refusal in the body fails the
test whatever the test makes of it: swallowing it, a skip and an xfail do not help.

The marker `jitwarm("record")` gives one test a mode of its own while the option is on. Without the
option and the fixture nothing is imported and nothing is wrapped.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # both bring msgspec and more, which an unused plugin must not
    from jitwarm.errors import UnexpectedCompiles
    from jitwarm.expect import Watch
    from jitwarm.observe.monitor import Monitor

_MODES = ("off", "record", "warn", "error")
_KINDS = {  # in the summary
    "compile": "compiles",
    "disk_hit": "disk hits",
    "load": "loads",
    "tune": "tunings",
    "refused": "refusals",
}
_CASE = ("setUp", "asyncSetUp", "tearDown", "asyncTearDown", "doCleanups")  # of a unittest.TestCase
_PROPERTY = "jitwarm"
_SHOWN = 5
_monitor_key: pytest.StashKey[Monitor] = pytest.StashKey()
_body_key: pytest.StashKey[_Body] = pytest.StashKey()


class JitwarmOfTest:
    """The fixture `jitwarm`: the monitor of one test, from its set-up on.

    It has everything that a `Monitor` has, to read and to set: `events`, `count`, `findings`,
    `plan`, `step`, `at`, `capture`.
    """

    monitor: Monitor

    def __init__(self, monitor: Monitor) -> None:
        """`monitor` watches already."""
        object.__setattr__(self, "monitor", monitor)

    def __setattr__(self, name: str, value: Any) -> None:
        """As for the monitor."""
        setattr(self.monitor, name, value)

    def __getattr__(self, name: str) -> Any:
        """What the monitor has."""
        return getattr(self.monitor, name)

    def warm(self) -> AbstractContextManager[None]:
        """A block of start-up: what is compiled in it is expected."""
        from jitwarm.observe.phases import phase

        return phase("warm")

    def expect_no_compiles(self, **options: Any) -> AbstractContextManager[Watch]:
        """As `jitwarm.expect.expect_no_compiles`, with this monitor's plan, if it has one."""
        from jitwarm.expect import expect_no_compiles

        return expect_no_compiles(**{"plan": self.monitor.plan} | options)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option `--jitwarm`."""
    parser.getgroup("jitwarm", "kernels that compile while tests run").addoption(
        "--jitwarm",
        choices=_MODES,
        default="off",
        help="watch what tests compile: record counts it, warn warns of it, error fails the test",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker; and the watching, if it is asked for."""
    config.addinivalue_line("markers", "jitwarm(mode): the mode of --jitwarm for this test")
    mode = config.getoption("--jitwarm")
    if mode != "off":
        config.pluginmanager.register(_Watching(mode), "jitwarm-watching")


@pytest.fixture
def jitwarm(request: pytest.FixtureRequest) -> Iterator[JitwarmOfTest]:
    """The monitor of this test, with `warm()` and `expect_no_compiles()`."""
    known = request.node.stash.get(_monitor_key, None)
    if known is not None:
        yield JitwarmOfTest(known)
        return
    from jitwarm.observe.monitor import Monitor

    with Monitor("record") as monitor:
        yield JitwarmOfTest(monitor)


class _Watching:
    """The hooks of a run that watches."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.tests = 0
        self.counts = dict.fromkeys(_KINDS, 0)
        self.compiling: list[tuple[float, str, str]] = []
        self.body: _Body | None = None  # of the test that runs

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse a marker with a mode that there is not, before any test runs."""
        for item in items:
            self._mode_of(item)

    @pytest.hookimpl(wrapper=True, trylast=True)  # innermost: an error of ours is the set-up's
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """Watch from the first fixture on."""
        if self._mode_of(item) != "off":
            from jitwarm.observe.monitor import Monitor

            item.stash[_monitor_key] = Monitor(
                "record", prepay=False, to_allow="pytest --jitwarm=warn"
            ).start()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Refuse, or warn, while the test itself runs."""
        monitor = item.stash.get(_monitor_key, None)
        if monitor is None:
            return (yield)
        mode = self._mode_of(item)
        if mode == "error":
            _prepay()
        self.body = item.stash[_body_key] = body = _Body(monitor, mode)
        try:
            with body.watched(item):
                result = yield
        finally:
            self.body = None
        if error := body.error():
            raise error
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self) -> Generator[None, Any, Any]:
        """Record what a fixture compiles that a body asks for."""
        with self.body.set_up() if self.body is not None else contextlib.nullcontext():
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Watch to the last fixture."""
        try:
            return (yield)
        finally:
            monitor = item.stash.get(_monitor_key, None)
            if monitor is not None:
                monitor.stop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost: it sees what an xfail makes of it
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Put the counts into the report, which finds its way from other processes too; and fail a
        test that skipped or xfailed over a refusal.
        """
        monitor = item.stash.get(_monitor_key, None)
        if call.when == "teardown" and monitor is not None:
            late = [event for event in monitor.events if event.late]
            if late:
                counts = " ".join(f"{k}={sum(e.kind == k for e in late)}" for k in _KINDS)
                ms = sum(event.ms for event in late if event.kind != "tune")
                item.user_properties.append((_PROPERTY, f"{counts} ms={ms:.1f}"))
        report = yield
        body = item.stash.get(_body_key, None)
        if call.when == "call" and body is not None and report.outcome != "failed":
            _fail(report, item, body)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up."""
        if report.when != "teardown":
            return
        self.tests += 1
        for name, text in report.user_properties:
            if name == _PROPERTY:
                found = dict(part.split("=") for part in str(text).split())
                for kind in _KINDS:
                    self.counts[kind] += int(found[kind])
                self.compiling.append((float(found["ms"]), report.nodeid, str(text)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line of counts, and the tests that waited longest."""
        counts = ", ".join(f"{self.counts[kind]} {words}" for kind, words in _KINDS.items())
        terminalreporter.section(f"jitwarm ({self.mode})")
        terminalreporter.write_line(
            f"{counts} outside of warm-up, in {len(self.compiling)} of {self.tests} tests"
        )
        for ms, test, _ in sorted(self.compiling, reverse=True)[:_SHOWN]:
            terminalreporter.write_line(f"  {ms:8.1f} ms  {test}")
        if (more := len(self.compiling) - _SHOWN) > 0:
            terminalreporter.write_line(f"  and {more} more test{'s' if more > 1 else ''}")

    def _mode_of(self, item: pytest.Item) -> str:
        marker = item.get_closest_marker("jitwarm")
        if marker is None or not (marker.args or marker.kwargs):
            return self.mode
        values = [*marker.args, *marker.kwargs.values()]
        if len(values) > 1 or marker.kwargs.keys() - {"mode"} or values[0] not in _MODES:
            given = [*map(repr, marker.args), *(f"{k}={v!r}" for k, v in marker.kwargs.items())]
            raise pytest.UsageError(
                f"{item.nodeid}: jitwarm({', '.join(given)}): give one mode, of {', '.join(_MODES)}"
            )
        return str(values[0])


class _Body:
    """The body of one test: what happens in it, but for what it sets up."""

    def __init__(self, monitor: Monitor, mode: str) -> None:
        self.monitor, self.mode = monitor, mode
        self.begin = self.end = len(monitor.events)
        self.apart: set[int] = set()  # the numbers of the events of set-ups

    @contextlib.contextmanager
    def watched(self, item: pytest.Item) -> Iterator[None]:
        """The block in which the test runs."""
        with contextlib.ExitStack() as stack:
            case = getattr(getattr(item, "obj", None), "__self__", None)
            unittest = sys.modules.get("unittest")
            if unittest is not None and isinstance(case, unittest.TestCase):
                for name in _CASE:
                    if hasattr(case, name):
                        setattr(case, name, self._as_set_up(getattr(case, name)))
                        stack.callback(delattr, case, name)
            self.monitor.mode = self.mode
            try:
                yield
            finally:
                self.monitor.mode = "record"
                self.end = len(self.monitor.events)

    @contextlib.contextmanager
    def set_up(self) -> Iterator[None]:
        """What happens in here is no part of the body."""
        mode, begin = self.monitor.mode, len(self.monitor.events)
        self.monitor.mode = "record"
        try:
            yield
        finally:
            self.monitor.mode = mode
            self.apart.update(range(begin, len(self.monitor.events)))

    def _as_set_up(self, method: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(method)
        def called() -> Any:
            with self.set_up():
                return method()

        @functools.wraps(method)
        async def awaited() -> Any:
            with self.set_up():
                return await method()

        return awaited if inspect.iscoroutinefunction(method) else called

    def error(self) -> UnexpectedCompiles | None:
        """In mode `error`: what was refused, tuned or traced in the body."""
        if self.mode != "error":
            return None
        from jitwarm.errors import UnexpectedCompiles
        from jitwarm.expect import Watch, unexpected_text

        events = self.monitor.events
        late = {id(events[at]) for at in range(self.begin, self.end) if at not in self.apart}
        watch = Watch(self.monitor, lambda event: id(event) not in late, self.monitor.plan)
        unexpected = watch.unexpected()
        if not unexpected:
            return None
        findings = watch.findings()
        return UnexpectedCompiles(unexpected_text(unexpected, findings), unexpected, findings)


def _fail(report: pytest.TestReport, item: pytest.Item, body: _Body) -> None:
    """Fail a test that was skipped or xfailed, if its body was refused a compile, or tuned."""
    error = body.error()
    if error is None:
        return
    try:
        raise error
    except type(error):
        report.longrepr = item.repr_failure(pytest.ExceptionInfo.from_current())
    report.outcome = "failed"
    if hasattr(report, "wasxfail"):
        del report.wasxfail


def _prepay() -> None:
    """Triton's lazy imports, where there is a device by now."""
    from jitwarm.backends.triton import hooks

    with contextlib.suppress(Exception):  # without a device a first refusal is slower, and no more
        hooks.prepay()
