"""For tests and for smoke checks: a block in which nothing may compile.

with expect_no_compiles() as watch:
    model.step(batch)
assert watch.loads == 0
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from jitwarm.backends.triton.in_memory import keys_in_memory
from jitwarm.errors import UnexpectedCompiles, UsageError
from jitwarm.findings import Finding
from jitwarm.judge.events import judge
from jitwarm.judge.planned import Plannable, Planned, path_of
from jitwarm.observe.events import Event
from jitwarm.observe.monitor import Monitor

Allow = str | Iterable[str] | Callable[[Event], bool]

_STALLS = ("compile", "disk_hit", "tune", "trace", "failed", "skipped", "refused")
_OWN_KINDS = ("DUP", "WARM-CRASH", "GATE-IGNORED")  # of the warm-up, not of the block


class Watch:
    """What happened in a block of `expect_no_compiles` so far; also after its end.

    Left out is what is allowed, and, of a monitor whose serving has not begun, what a warm-up does.
    """

    def __init__(self, monitor: Monitor, allow: Allow, plan: Plannable) -> None:
        """As `expect_no_compiles`."""
        self._monitor, self._allowed, self._plan = monitor, _allowed(allow), plan

    @property
    def events(self) -> list[Event]:
        """Everything that was not expected, loads included."""
        return [
            event for event in list(self._monitor.events) if event.late and not self._allowed(event)
        ]

    @property
    def compiles(self) -> int:
        """How often the compiler ran."""
        return self._count("compile")

    @property
    def disk_hits(self) -> int:
        """How many binaries came from disk."""
        return self._count("disk_hit")

    @property
    def loads(self) -> int:
        """How many modules were loaded."""
        return self._count("load")

    @property
    def tunes(self) -> int:
        """How often configurations were timed against each other."""
        return self._count("tune")

    def unexpected(self, *, loads: bool = False) -> list[Event]:
        """The events that `expect_no_compiles` raises for."""
        return [e for e in self.events if e.kind in _STALLS or (loads and e.kind == "load")]

    def findings(self, *, loads: bool = False) -> tuple[Finding, ...]:
        """Why, and what to do: one finding for each key.

        Without a plan, keys are compared with what Triton had in memory.
        """
        events = self.unexpected(loads=loads)
        plan = Planned.of(self._plan) or Planned(_in_memory(events))
        warm = [event for event in self._monitor.events if not event.late]
        return tuple(one for one in judge([*warm, *events], plan) if one.kind not in _OWN_KINDS)

    def _count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)


@contextmanager
def expect_no_compiles(
    *, allow: Allow = (), plan: Plannable = None, loads: bool = False
) -> Iterator[Watch]:
    """Raise `UnexpectedCompiles`, an AssertionError, at the end of the block if anything was
    compiled, read from disk, traced or tuned in it, in any thread; with `loads` also if a module
    was loaded.

    What a warm-up inside of the block makes counts as well. `allow` names what may compile: a
    kernel by its name or import path, or a whole key, in which `*` stands for any text and `?` for
    any character (the brackets of a key are brackets); several of these; or a function that says so
    of an event. Anything else raises `UsageError`. `plan` is what was warmed, to explain by. An
    exception of the block passes as it is.
    """
    with Monitor("record") as monitor:
        monitor.begin_serving()
        watch = Watch(monitor, allow, plan)
        yield watch
    events = watch.unexpected(loads=loads)
    if events:
        findings = watch.findings(loads=loads)
        raise UnexpectedCompiles(unexpected_text(events, findings), events, findings)


def unexpected_text(events: list[Event], findings: Iterable[Finding]) -> str:
    """The message: how many of what, then each finding with its place and its advice."""
    lines = [f"{counted(events)} where none was expected"]
    for finding in findings:
        at = f" at {finding.site}" if finding.site else ""
        by = f" [{', '.join(finding.owners)}]" if finding.owners else ""
        lines.append(f"  {finding.kind} {finding.message}{by}{at}")
        lines.append(f"    do: {finding.advice}")
    return "\n".join(lines)


_WORDS = {
    "compile": ("compile", "compiles"),
    "disk_hit": ("disk hit", "disk hits"),
    "load": ("load", "loads"),
    "tune": ("tuning", "tunings"),
    "trace": ("repeated trace", "repeated traces"),
    "failed": ("failed compile", "failed compiles"),
    "skipped": ("skipped compile", "skipped compiles"),
    "refused": ("refused compile", "refused compiles"),
}


def counted(events: Iterable[Event]) -> str:
    """`2 compiles, 1 load`."""
    kinds = [event.kind for event in events]
    return ", ".join(
        f"{kinds.count(kind)} {one if kinds.count(kind) == 1 else many}"
        for kind, (one, many) in _WORDS.items()
        if kind in kinds
    )


def _in_memory(events: Iterable[Event]) -> list[str]:
    """What Triton has in memory of the kernels of these events, beside what the events made."""
    late = {event.key for event in events}
    paths = dict.fromkeys(path_of(key) for key in sorted(late))
    return [text for path in paths for text in keys_in_memory(path) if text not in late]


def _allowed(allow: Allow) -> Callable[[Event], bool]:
    if callable(allow):
        return allow
    patterns = [allow] if isinstance(allow, str) else allow
    if not isinstance(patterns, Iterable):
        raise _wrong(allow)
    patterns = list(patterns)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise _wrong(allow)
    # Not fnmatch: to it the arguments of a key, in brackets, are a set of characters.
    known = re.compile("|".join(map(_expression, patterns)) or "(?!)", re.DOTALL)

    def allowed(event: Event) -> bool:
        names = (event.kernel, event.kernel.rpartition(".")[2], event.key)
        return any(known.fullmatch(name) for name in names)

    return allowed


def _expression(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


def _wrong(allow: object) -> UsageError:
    return UsageError(
        f"allow={allow!r}: give a kernel's name or a key (`*` and `?` allowed), several of these, "
        "or a function of an event; () allows nothing"
    )
