"""The contract class: one singleton for each kernel, used by serving code and by start-up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

from jitwarm.amounts import counted
from jitwarm.backends import backend_of, launches, sinks
from jitwarm.backends.miss import Miss, serving
from jitwarm.contract.cases import expand_cases
from jitwarm.contract.executors import ExecutorCache
from jitwarm.contract.expander import counting_points, expand
from jitwarm.contract.keytype import check_key_type, key_text
from jitwarm.contract.signatures import declared_inputs
from jitwarm.declare.config_argument import supply_config
from jitwarm.declare.enumeration import (
    ALL_FAILED,
    Declared,
    Enumeration,
    raise_if_single,
    taken,
)
from jitwarm.declare.nokeys import NoKeys
from jitwarm.declare.spelling import nearest
from jitwarm.errors import (
    DeclarationError,
    MissingInputError,
    NothingStoredError,
    UnknownInputError,
    WrongKindError,
)
from jitwarm.observe import phases

KeyT = TypeVar("KeyT")
_MISSING = object()
SILENT_ZERO = "returned no keys and no reason"


@dataclass(frozen=True, slots=True)
class OpaqueRecipe:
    """A compile that only its kernel knows how to do: `kernel.compile(key)`, in this process."""

    backend: ClassVar[str] = "opaque"

    kernel: Any
    key: Any


class JitKernel(ABC, Generic[KeyT]):
    """A kernel that compiles on first use, with the keys that must be ready.

    A subclass has a class `CompileKey` (frozen, hashable; checked when the subclass is made),
    `dispatch`, `get_warmup_keys` and `compile`. `kernel_name` is what reports show: the class's
    name without a trailing "Kernel" unless the class sets it. `bind_launch_inputs` says whether
    `kernel_launcher` hands the call's inputs to `launch`.
    """

    CompileKey: ClassVar[Any]
    kernel_name: str
    bind_launch_inputs: ClassVar[bool] = True
    # What plans call this object in opaque keys, where it is not the first of its class.
    opaque_path: str = ""
    _compiled_cache: ExecutorCache[KeyT]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Name the kernel and check its key type."""
        super().__init_subclass__(**kwargs)
        if "kernel_name" not in cls.__dict__:
            cls.kernel_name = cls.__name__.removesuffix("Kernel") or cls.__name__
        if "CompileKey" in cls.__dict__:
            check_key_type(cls.kernel_name, cls.CompileKey)

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:
        """Give the instance its cache here: a subclass need not call our `__init__`."""
        self = super().__new__(cls)
        self._compiled_cache = ExecutorCache()
        return self

    # What a kernel author writes.

    def dispatch(self, *args: Any, **inputs: Any) -> KeyT:
        """The key of one run-time point.

        Any pure Python; start-up and serving call this same function.
        """
        raise NotImplementedError(f"{self.kernel_name} has no dispatch")

    @abstractmethod
    def get_warmup_keys(self, *args: Any, **kwargs: Any) -> Iterable[KeyT] | NoKeys:
        """The keys that must be ready, or `NoKeys(reason)`.

        Usually `return self._trace_dispatch(self.dispatch)(...)`.
        """

    @abstractmethod
    def compile(self, key: KeyT) -> Any:
        """Make one key ready without a launch; store its executor in `_compiled_cache[key]`."""

    # What it gets.

    def compile_many(self, keys_: Iterable[KeyT]) -> None:
        """Compile each key in order.

        All are tried; the failures come together as one ExceptionGroup.
        """
        wanted = list(keys_)
        failures: list[Exception] = []
        with phases.phase("warm"):
            for key in wanted:
                try:
                    self._compile_ahead(key)
                except Exception as error:  # whatever it is, the other keys come first
                    error.add_note(f"while compiling {key!r}")
                    failures.append(error)
        if failures:
            raise ExceptionGroup(
                f"{self.kernel_name}: {len(failures)} of {counted(len(wanted), 'key')} failed to "
                "compile",
                failures,
            )

    def compile_key(self, inputs: Mapping[str, object]) -> KeyT:
        """The key of one point given as a mapping.

        Raises `WrongKindError` (a TypeError) if there is no dispatch.
        """
        if type(self).dispatch is JitKernel.dispatch:
            raise WrongKindError(
                f"{self.kernel_name}: compile_key needs a dispatch method, and the class has none"
            )
        declared = declared_inputs(self.kernel_name, self.dispatch)
        for name in inputs:
            if not declared.takes(name):
                raise UnknownInputError(
                    f"{self.kernel_name}: dispatch has no input "
                    f"{name!r}{nearest(name, declared.names)}"
                )
        missing = [
            name for name in declared.names if name in declared.required and name not in inputs
        ]
        if missing:
            raise MissingInputError(
                f"{self.kernel_name}: dispatch requires {', '.join(map(repr, missing))}"
            )
        return self._checked(self.dispatch(**inputs))

    def _trace_dispatch(self, fn: Callable[..., KeyT]) -> Callable[..., list[KeyT]]:
        """The expander over `fn`: call it with row groups, axes by name and `_when=predicate`."""

        def traced(
            *groups: object, _when: Callable[..., Any] | None = None, **axes: object
        ) -> list[KeyT]:
            return expand(
                self.kernel_name, self._key_type(), fn, groups=groups, when=_when, axes=axes
            )

        return traced

    def _expand_warmup_cases(
        self, fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Iterator[Mapping[str, Any]]:
        """The mappings that `fn(*args, **kwargs)`, a function in the "cases" style, stands for: see
        `jitwarm.contract.cases`.
        """
        return expand_cases(self.kernel_name, fn, args, kwargs)

    def _get_or_compile(self, key: KeyT, *, runtime_context: object = None) -> Any:
        """The executor of `key`, compiled now if it is missing.

        Two threads that miss it together compile it once. The compile is an event, and a call is
        counted as a launch of this key, unless the compiler's own hooks tell of both.

        Raises `NothingStoredError` (a RuntimeError) if `compile` stored nothing under this key, and
        what a monitor raises to refuse it.
        """
        if launches.counting() and (text := self._opaque_text(key)):
            launches.count(text)
        cache = self._compiled_cache
        executor = cache.get(key, _MISSING)
        if executor is not _MISSING:
            return executor
        with cache.once(key):
            executor = cache.get(key, _MISSING)
            if executor is _MISSING:
                self._compile_now(key)
                executor = cache.get(key, _MISSING)
        if executor is _MISSING:
            raise NothingStoredError(
                f"{type(self).__qualname__}: compile({key!r}) stored nothing under this key "
                f"(runtime context: {runtime_context!r}); "
                "store the executor in self._compiled_cache[key]"
            )
        return executor

    def _compile_ahead(self, key: KeyT) -> None:
        """`compile` for a warm-up. One after start-up stalls its caller as a launch would, and is
        told, or refused, like it.
        """
        if sinks.serving() and self._compiled_cache.get(key, _MISSING) is _MISSING:
            self._compile_now(key)
        else:
            self.compile(key)

    def _compile_now(self, key: KeyT) -> None:
        """A compile that serving waits for. A null kernel is of no use here: it compiles."""
        text = self._opaque_text(key) if sinks.active() else ""
        if not text:
            self.compile(key)
            return
        miss = Miss(text.partition("[")[0].partition("#")[0], text)
        sinks.ask(miss)
        try:
            with serving(miss):
                self.compile(key)
        finally:
            sinks.compiled(miss)

    def _opaque_text(self, key: KeyT) -> str:
        """The backend key of `key`, if no compiler's own keys tell what its recipe makes."""
        recipe = self.recipe(key)
        if not isinstance(recipe, OpaqueRecipe):
            return ""
        text: str = backend_of(recipe).key(recipe)
        return self.opaque_path + text[text.index("[") :] if self.opaque_path else text

    def register_warmup(self, *args: Any, **kwargs: Any) -> None:
        """Register with the active registry; the arguments go to `get_warmup_keys`.

        Nothing is compiled.
        """
        from jitwarm.registry import JitWarmupRegistry

        JitWarmupRegistry.register(self, *args, **kwargs)

    def warmup(self, *args: Any, **kwargs: Any) -> None:
        """Compile the keys of `get_warmup_keys(*args, **kwargs)` now, without a registry."""
        given = self.get_warmup_keys(*args, **kwargs)
        if not isinstance(given, NoKeys):
            with phases.phase("warm"):
                self.compile_many(given)

    # What the plan asks for.

    def enumerate_keys(
        self, config: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Enumeration:
        """The declared keys of one registration with text and recipe, in first-seen order.

        `config` is passed to `get_warmup_keys` under its parameter `config` or `vllm_config` if the
        registration left it open. `points` counts what the expander evaluated; keys listed by hand
        count as a point each.
        """
        name = self.kernel_name
        with counting_points() as count:
            given = self.get_warmup_keys(
                *args, **supply_config(name, self.get_warmup_keys, config, args, kwargs)
            )
            if isinstance(given, NoKeys):
                return Enumeration(name, count.points, (), given.reason)
            if isinstance(given, set | frozenset) or not isinstance(given, Iterable):
                raise DeclarationError(
                    f"{name}: get_warmup_keys returned a {type(given).__name__}; return a list of "
                    "keys, whose order is fixed, or NoKeys('reason')"
                )
            found, failures = taken(given)
        declared: dict[str, Declared] = {}
        seen: set[str] = set()
        for key in found:
            try:
                text = self.key_text(self._checked(key))
                if text not in seen:
                    seen.add(text)
                    declared |= {part.text: part for part in self.parts(key)}
            except Exception as error:  # one bad key must not cost the others
                failures.append(error)
        raise_if_single(failures, declared)
        return Enumeration(
            name,
            count.points or len(found),
            tuple(declared.values()),
            None if declared else ALL_FAILED if failures else SILENT_ZERO,
            silent=not declared and not failures,
            failures=tuple(failures),
        )

    def recipe(self, key: KeyT) -> object:
        """What a compile of `key` needs."""
        return OpaqueRecipe(self, key)

    def parts(self, key: KeyT) -> list[Declared]:
        """The recipes of `key`, each with its text: one, unless a key has several binaries."""
        return [Declared(self.key_text(key), self.recipe(key))]

    def key_text(self, key: KeyT) -> str:
        """The canonical text of a key, as in `Scale(block=256, stride_class=16)`."""
        return key_text(self.kernel_name, key)

    def _key_type(self) -> type:
        kind = getattr(type(self), "CompileKey", None)
        if kind is None:
            raise DeclarationError(
                f"{self.kernel_name}: the class has no CompileKey; declare a frozen dataclass of "
                "that name"
            )
        return kind  # type: ignore[no-any-return]

    def _checked(self, key: Any) -> KeyT:
        if not isinstance(key, self._key_type()):
            raise DeclarationError(
                f"{self.kernel_name}: got a {type(key).__qualname__} where a key of type "
                f"{self._key_type().__qualname__} is needed"
            )
        return cast(KeyT, key)
