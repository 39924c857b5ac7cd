"""The form of a fault: what is launched, what was declared, and which findings must come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

from jitwarm import keys
from jitwarm.errors import FaultError
from jitwarm.findings import Kind
from jitwarm.judge.stores import FolderStore
from jitwarm.observe.events import Event
from jitwarm.observe.events import Kind as EventKind

KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Expected:
    """A finding that must come, matched by every field that is given.

    `field`, `warmed`, `seen` and `kernel` are compared as a whole; of a Triton class such as
    `i32/D` the type (`i32`) or the class (`D`, or the empty text) alone will do. `smallest`,
    `message`, `advice` and `site` are parts of the finding's text. `count` is how many findings
    must match; without it, one or more.
    """

    kind: str
    field: str | None = None
    warmed: str | None = None
    seen: str | None = None
    kernel: str | None = None
    smallest: str | None = None
    message: str | None = None
    advice: str | None = None
    site: str | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        """Refuse a kind that no finding has, and fields that are no text."""
        for one in fields(self)[1:-1]:
            value = getattr(self, one.name)
            if value is not None and not isinstance(value, str):
                raise FaultError(
                    f"Expected({self.kind!r}): {one.name} is {value!r}; findings have texts there"
                )
        if self.count is not None and type(self.count) is not int:
            raise FaultError(f"Expected({self.kind!r}): count is {self.count!r}; give a number")
        if self.kind not in KINDS:
            raise FaultError(f"Expected({self.kind!r}): no such kind; use {', '.join(KINDS)}")
        if self.count is not None and self.count < 1:
            raise FaultError(f"Expected({self.kind!r}, count={self.count}): expect at least one")

    def text(self) -> str:
        """As it was written, without what it leaves open."""
        given = ((one.name, getattr(self, one.name)) for one in fields(self)[1:])
        inner = "".join(f", {name}={value!r}" for name, value in given if value is not None)
        return f"{self.kind}{f'({inner[2:]})' if inner else ''}"


@dataclass(frozen=True, slots=True)
class Budget:
    """What a warm-up may cost: `seconds` in all, where one key takes `seconds_per_key`."""

    seconds: float
    seconds_per_key: float = 0.5

    @property
    def keys(self) -> int:
        """How many keys that allows."""
        return int(self.seconds / self.seconds_per_key)


Rank = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """One scenario and the findings that must come of it; none are expected of a twin.

    `kernel` is what is warmed: a `@triton.jit` function, an object of a contract class, a
    `Declaration`, or a `KeyFunction`. `declared` says which of its launches: `launch(...)` cases, a
    function (of `config`, if it has such a parameter) that returns them, or `NoKeys`; for a
    `KeyFunction`, inputs as `launch(...)` or mappings. A contract class declares its own keys, with
    `register` as the arguments of `register_warmup`.

    `launches` are `launch(...)`es (or mappings) that traffic makes, an `Envelope` or several, or a
    function that really launches, on CPU tensors; then the keys are warmed before it, to `depth`
    (`compiled` or `loaded`), unless `enabled` is False. `warmup` is a hand-written warm-up that
    runs instead (beside it where `enabled` is False). Both functions may take the process's `rank`.
    A list of functions is one a step. A list of launches is a sample: what it does not reach is
    told only if it is `complete`.

    `events` and `step_ms` (milliseconds of each step) are judged as they are; with
    `step_ms="measured"` the steps are timed. `processes` of the scenario run one after the other,
    with one set of caches or, without `shares_caches`, with one each. `budget` limits the declared
    keys. `store` makes a store in a folder; `processes` (at least 4) use it at once.
    """

    title: str
    expected: Sequence[Expected] = ()
    kernel: Any = None
    declared: Any = None
    register: Mapping[str, Any] | None = None
    launches: Any = None
    complete: bool = False
    warmup: Rank | None = None
    enabled: bool = True
    depth: str = "loaded"
    config: Any = None
    processes: int = 1
    shares_caches: bool = True
    events: Sequence[Event] = ()
    step_ms: Sequence[float] | str = ()
    budget: Budget | None = None
    store: Callable[[Any], FolderStore] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        title: Any = self.title
        if not isinstance(title, str):
            self._refuse(f"its title is a {type(title).__name__}; give a text")
        expected: Any = self.expected
        if isinstance(expected, Expected):
            expected = (expected,)
            object.__setattr__(self, "expected", expected)
        for one in expected:
            if not isinstance(one, Expected):
                self._refuse(f"expected holds a {type(one).__name__}; use Expected(kind, ...)")
        if not (self.events or self.step_ms or self.store) and (
            self.kernel is None and self.launches is None and self.warmup is None
        ):
            self._refuse("there is nothing to judge; give a kernel, launches, events or a store")
        if self.declared is not None and self.kernel is None:
            self._refuse("declared needs a kernel")
        if isinstance(self.step_ms, str) and self.step_ms != "measured":
            self._refuse(f"step_ms is {self.step_ms!r}; give numbers, or 'measured'")
        if self.step_ms == "measured" and not self.steps:
            self._refuse("step_ms='measured' needs launches that are functions, one a step")
        if self.depth not in ("compiled", "loaded"):
            self._refuse(f"depth is {self.depth!r}; use compiled or loaded")
        if self.processes < 1:
            self._refuse(f"processes is {self.processes}; at least one runs it")

    def _refuse(self, problem: str) -> None:
        raise FaultError(f"Fault({self.title!r}): {problem}")

    @property
    def steps(self) -> tuple[Callable[..., Any], ...]:
        """The functions that really launch, one a step; none where launches are written down."""
        given = self.launches if isinstance(self.launches, list | tuple) else (self.launches,)
        return tuple(given) if given and all(map(callable, given)) else ()


def event(
    kind: EventKind,
    key: str,
    *,
    kernel: str = "",
    ms: float = 100.0,
    phase: str = "serve",
    step: int = -1,
    rank: int = 0,
    request: str = "",
) -> Event:
    """An event of `key`; the kernel is what stands before its `[`, unless it is given."""
    name = kernel or key.partition("[")[0]
    return Event(kind, name, key, keys.key_id(key), ms, {}, phase, step, request, rank)
