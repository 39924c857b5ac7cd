"""Register: layers of a model name the kernels they will launch while they are built; nothing
compiles.

A registry collects requests: a kernel (a `Declaration` or a contract kernel), the arguments of its
key enumeration, and who asked. Equal requests are one request with many askers: in a 61-layer model
nearly all are equal.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from jitwarm import env
from jitwarm.arguments import snapshot, token
from jitwarm.declare.config_argument import CONFIG_NAMES
from jitwarm.declare.enumeration import Enumeration
from jitwarm.errors import RegistrationError
from jitwarm.findings import FindingWarning

_active: ContextVar[tuple[JitWarmupRegistry, int] | None] = ContextVar(
    "jitwarm_registry", default=None
)
_owner: ContextVar[str] = ContextVar("jitwarm_owner", default="")
_outside: Counter[str] = Counter()
_outside_lock = threading.Lock()


class Warmable(Protocol):
    """What can be registered."""

    kernel_name: str

    def enumerate_keys(
        self, config: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Enumeration:
        """The keys of one request."""


@dataclass(slots=True)
class Request:
    """One distinct request and how often each owner made it."""

    kernel: Warmable
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    owners: Counter[str] = field(default_factory=Counter)

    @property
    def registrations(self) -> int:
        """How many registrations this request stands for."""
        return self.owners.total()


class JitWarmupRegistry:
    """Requests of one engine process.

    `config` is what declarations read. With `strict` (default: the environment's JITWARM_STRICT) a
    registration outside any scope raises instead of being counted; see `outside_scope`.
    """

    strict: ClassVar[bool | None] = None

    def __init__(self, config: Any = None) -> None:
        """An empty registry for this configuration."""
        self.config = config
        self.superseded = 0
        self._requests: dict[Hashable, Request] = {}
        self._by_owner: dict[tuple[str, Warmable], tuple[int, list[Hashable]]] = {}
        self._scopes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """The number of distinct requests."""
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        """The distinct requests in the order of their first registration.

        Of the moment of the call: a kernel may register others while it is enumerated.
        """
        with self._lock:
            return iter(list(self._requests.values()))

    @property
    def registrations(self) -> int:
        """All registrations that count, superseded ones left out."""
        return sum(request.registrations for request in self)

    @contextmanager
    def activate(self) -> Iterator[JitWarmupRegistry]:
        """Make this the registry of the current context; the innermost one wins, the outer one
        returns afterwards.

        Each activation is a scope of its own. What an owner registers for a kernel in a later scope
        supersedes what it registered for that kernel in an earlier one: a placeholder geometry
        first, the real one once the cache is allocated.
        """
        self._scopes += 1
        restore = _active.set((self, self._scopes))
        try:
            yield self
        finally:
            _active.reset(restore)

    @classmethod
    def capture(cls, init: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a runner's `__init__(self, config, ...)`: it runs inside a new registry,
        `self.jit_warmup_registry`.

        The configuration is the first argument, or the one called `config` or `vllm_config`.
        """

        @functools.wraps(init)
        def wrapped(instance: Any, *args: Any, **kwargs: Any) -> Any:
            named = (kwargs[name] for name in CONFIG_NAMES if name in kwargs)
            instance.jit_warmup_registry = cls(args[0] if args else next(named, None))
            with instance.jit_warmup_registry.activate():
                return init(instance, *args, **kwargs)

        return wrapped

    @classmethod
    def register(cls, kernel: Warmable, *args: Any, **kwargs: Any) -> None:
        """Register `kernel` with the active registry; the arguments go to its key enumeration.

        Outside any scope the registration is counted by name (`outside_scope`), or raises
        `RegistrationError` in strict mode.
        """
        active = _active.get()
        if active is None:
            cls._register_outside(kernel)
            return
        registry, scope = active
        registry._add(scope, _owner.get(), kernel, args, kwargs)

    def warmup(self, **options: Any) -> Any:
        """Plan and warm everything registered; `options` are those of `jitwarm.warm.warm`.

        Nothing compiles if the configuration's `kernel_config.enable_jit_warmup` is False. Returns
        the `WarmReport`. All keys are tried; if some failed, an ExceptionGroup with every failure
        is raised at the end.
        """
        from jitwarm.plan import make_plan
        from jitwarm.warm import warm

        switch = getattr(getattr(self.config, "kernel_config", None), "enable_jit_warmup", True)
        plan = make_plan(self)
        for finding in plan.findings:
            warnings.warn(f"{finding.message}; {finding.advice}", FindingWarning, stacklevel=2)
        report = warm(plan, **{"enabled": bool(switch)} | options)
        report.raise_failures()
        return report

    @classmethod
    def _register_outside(cls, kernel: Warmable) -> None:
        strict = env.strict() if cls.strict is None else cls.strict
        if strict:
            raise RegistrationError(
                f"{kernel.kernel_name}: registered outside any warm-up scope, so it would never "
                "be warmed: register while a JitWarmupRegistry is active "
                "(`with registry.activate():`)"
            )
        with _outside_lock:
            _outside[kernel.kernel_name] += 1

    def _add(
        self,
        scope: int,
        owner: str,
        kernel: Warmable,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        same = (kernel, token(args), token(kwargs))
        with self._lock:  # a thread that was given this context may register too
            if owner:
                self._supersede(scope, owner, kernel, same)
            request = self._requests.get(same)
            if request is None:
                request = Request(kernel, snapshot(args), snapshot(kwargs))
                self._requests[same] = request
            request.owners[owner] += 1

    def _supersede(self, scope: int, owner: str, kernel: Warmable, same: Hashable) -> None:
        latest, tokens = self._by_owner.get((owner, kernel), (scope, []))
        if latest < scope:
            for old in tokens:
                self._withdraw(old, owner)
            tokens = []
        tokens.append(same)
        # Back in an outer scope the inner one stays the latest: nothing of it is superseded.
        self._by_owner[owner, kernel] = (max(latest, scope), tokens)

    def _withdraw(self, same: Hashable, owner: str) -> None:
        request = self._requests[same]
        request.owners[owner] -= 1
        self.superseded += 1
        if not request.owners[owner]:
            del request.owners[owner]
        if not request.owners:
            del self._requests[same]


@contextmanager
def owner(name: str) -> Iterator[None]:
    """Name who registers: a layer or a component, as in `model.layers.3.indexer`. The innermost
    name wins.
    """
    outer = _owner.set(name)
    try:
        yield
    finally:
        _owner.reset(outer)


def outside_scope() -> dict[str, int]:
    """Registrations of this process that no registry took, by kernel name: kernels that will not be
    warmed.
    """
    return dict(sorted(_outside.items()))
