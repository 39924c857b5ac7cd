"""pytest: which tests compile kernels, and a fixture to say that none may.

    pytest --jitwarm=record     lines at the end: what was compiled and loaded, in which tests
    pytest --jitwarm=warn       a warning for each compile as well
    pytest --jitwarm=error      a test that compiles outside of `jitwarm.warm()` fails, before the
                                compiler is asked

    def test_decode(jitwarm):
        with jitwarm.warm():
            engine.start()
        with jitwarm.expect_no_compiles():
            engine.step()

`error` is about the body of a test: what its fixtures compile is recorded, and passes. The marker
`jitwarm("record")` gives one test a mode of its own while the option is on. Without the option and
the fixture nothing is imported and nothing is wrapped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # both bring msgspec and more, which an unused plugin must not
    from jitwarm.expect import Watch
    from jitwarm.monitor import Monitor

_MODES = ("off", "record", "warn", "error")
_KINDS = ("compile", "disk_hit", "load", "tune")
_PROPERTY = "jitwarm"
_SHOWN = 5
_monitor_key: pytest.StashKey[Monitor] = pytest.StashKey()


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
        from jitwarm.phases import phase

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
    from jitwarm.monitor import Monitor

    with Monitor("record") as monitor:
        yield JitwarmOfTest(monitor)


class _Watching:
    """The hooks of a run that watches."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.tests = 0
        self.counts = dict.fromkeys(_KINDS, 0)
        self.compiling: list[tuple[float, str, str]] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse a marker with a mode that there is not, before any test runs."""
        for item in items:
            if self._mode_of(item) not in _MODES:
                raise pytest.UsageError(
                    f"{item.nodeid}: jitwarm({self._mode_of(item)!r}): use one of "
                    f"{', '.join(_MODES)}"
                )

    @pytest.hookimpl(wrapper=True, trylast=True)  # innermost: an error of ours is the set-up's
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """Watch from the first fixture on."""
        if self._mode_of(item) != "off":
            from jitwarm.monitor import Monitor

            item.stash[_monitor_key] = Monitor("record", prepay=False).start()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Refuse, or warn, while the test itself runs."""
        monitor = item.stash.get(_monitor_key, None)
        if monitor is None:
            return (yield)
        mode, before = self._mode_of(item), len(monitor.events)
        if mode == "error":
            _prepay()
        monitor.mode = mode
        try:
            result = yield
        finally:
            monitor.mode = "record"
        if mode == "error":
            _fail_if_late(monitor, before)
        return result

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Watch to the last fixture."""
        try:
            return (yield)
        finally:
            monitor = item.stash.get(_monitor_key, None)
            if monitor is not None:
                monitor.stop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Put the counts into the report, which finds its way from other processes too."""
        monitor = item.stash.get(_monitor_key, None)
        if call.when == "teardown" and monitor is not None:
            late = [event for event in monitor.events if event.phase != "warm"]
            if late:
                counts = " ".join(f"{k}={sum(e.kind == k for e in late)}" for k in _KINDS)
                ms = sum(event.ms for event in late if event.kind != "tune")
                item.user_properties.append((_PROPERTY, f"{counts} ms={ms:.1f}"))
        return (yield)

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
        words = {"compile": "compiles", "disk_hit": "disk hits", "load": "loads", "tune": "tunings"}
        counts = ", ".join(f"{self.counts[kind]} {words[kind]}" for kind in _KINDS)
        terminalreporter.section(f"jitwarm ({self.mode})")
        terminalreporter.write_line(
            f"{counts} outside of warm-up, in {len(self.compiling)} of {self.tests} tests"
        )
        for ms, test, _ in sorted(self.compiling, reverse=True)[:_SHOWN]:
            terminalreporter.write_line(f"  {ms:8.1f} ms  {test}")

    def _mode_of(self, item: pytest.Item) -> str:
        marker = item.get_closest_marker("jitwarm")
        return str(marker.args[0]) if marker is not None and marker.args else self.mode


def _prepay() -> None:
    """Triton's lazy imports, where there is a device by now."""
    from jitwarm.backends.triton import hooks

    with contextlib.suppress(Exception):  # without a device a first refusal is slower, and no more
        hooks.prepay()


def _fail_if_late(monitor: Monitor, before: int) -> None:
    """Fail a test that swallowed a refusal, or tuned, or traced."""
    from jitwarm.errors import UnexpectedCompiles
    from jitwarm.expect import Watch, unexpected_text

    late = [id(event) for event in monitor.events[before:]]
    watch = Watch(monitor, lambda event: id(event) not in late, monitor.plan)
    events = watch.unexpected()
    if events:
        findings = watch.findings()
        raise UnexpectedCompiles(unexpected_text(events, findings), events, findings)
