"""A kernel whose launches are declared by the inputs that lead to them: its keys, its plan.

What the two forms of `triton_kernel_dispatcher_with_warmup` have in common; they differ in how a
case becomes a launch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from jitwarm import keys
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.backends.triton.unwrap import is_jit_function
from jitwarm.contract.autotune import launches_of, make_ready, triton_parts, triton_recipes
from jitwarm.contract.cases import given_cases
from jitwarm.contract.expander import counting_points
from jitwarm.contract.kernel import OpaqueRecipe
from jitwarm.contract.launcher import BoundLaunch
from jitwarm.contract.odometer import Case
from jitwarm.declare.config_argument import CONFIG_NAMES, supply_config
from jitwarm.declare.enumeration import ALL_FAILED, Declared, Enumeration, raise_if_single
from jitwarm.declare.nokeys import NoKeys

SILENT_ZERO = "its warmup_inputs gave no case and no reason"


@dataclass(frozen=True, slots=True)
class TritonCompileKey:
    """What one case compiles: its backend keys in canonical text, several for an autotuner.

    `options` are the names of the launch options as written: another order, or a default written
    out, is another look-up of the same binary. `choices` say for which arguments an autotuner has
    to choose. `inputs` is the case itself, for `compile`; it takes no part in equality.
    """

    backend_keys: tuple[str, ...]
    options: tuple[str, ...]
    choices: tuple[str, ...]
    inputs: Case = field(compare=False, repr=False)

    def canonical(self) -> str:
        """Text of the key, short for an autotuner: the choices, and the id of its backend keys."""
        if not self.choices:
            return f"{keys.canonical(self.backend_keys)} {keys.canonical(self.options)}"
        together = keys.key_id("\n".join((*self.backend_keys, *self.options)))
        return f"{' '.join(self.choices)} of {together}"


class WarmedKernel:
    """What both forms of the decorator have in common: keys, registration, compile.

    `kernel` is the Triton kernel; `obj[grid]` and attributes that are not found here are those of
    `kernel`. `kernel_name` is the decorated function's name.
    """

    wraps_kernel: ClassVar[bool] = True  # see `jitwarm.backends.triton.naming`
    kernel_name: str
    __name__: str
    __qualname__: str

    def __init__(self, function: Any, kernel: Any, provider: Callable[..., Any]) -> None:
        """`function` is what was decorated and gives name and docstring."""
        while not inspect.isfunction(function):
            function = function.fn
        functools.update_wrapper(cast("Any", self), function, updated=())
        self.kernel, self.provider = kernel, provider
        self.kernel_name = self.__name__

    def __getitem__(self, grid: Any) -> Any:
        """The native launcher of the kernel."""
        return self.kernel[grid]

    def __getattr__(self, name: str) -> Any:
        """What is not found here is the kernel's."""
        if name == "kernel" or name.startswith("__"):  # not there yet, or Python asking
            raise AttributeError(name)
        return getattr(self.kernel, name)

    def __repr__(self) -> str:
        """Name and module."""
        return f"<{self.__module__}.{self.__qualname__} with warm-up>"

    def register_warmup(self, *args: Any, **kwargs: Any) -> None:
        """Register with the active registry; the arguments go to `warmup_inputs`.

        Nothing is compiled.
        """
        from jitwarm.registry import JitWarmupRegistry

        JitWarmupRegistry.register(self, *args, **kwargs)

    def get_warmup_keys(
        self, *, config: Any = None, vllm_config: Any = None, **kwargs: Any
    ) -> list[TritonCompileKey] | NoKeys:
        """The distinct keys of the cases that `warmup_inputs(**kwargs)` gives, in order.

        It gets the configuration if it has a parameter `config` or `vllm_config`. The first case
        of several with the same keys counts. Needs an active device. Raises an ExceptionGroup if
        several cases cannot be bound, and what is wrong if one cannot.
        """
        given = config if vllm_config is None else vllm_config
        found, spoken, failures = self._collect(given, (), kwargs)
        raise_if_single(failures, ())
        if failures:
            raise ExceptionGroup(f"{self.kernel_name}: cases that cannot be bound", failures)
        return spoken or [key for key, _ in found]

    def compile(self, key: TritonCompileKey) -> Any:
        """Compile a key without launching it; an autotuned kernel makes its choice, too.

        Returns the CompiledKernel, or the list of an autotuner's.
        """
        return make_ready(self.kernel_name, self.bound_launch(key.inputs))

    def enumerate_keys(
        self, config: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Enumeration:
        """The declared keys of one registration with text and recipe, in first-seen order."""
        with counting_points() as count:
            found, spoken, failures = self._collect(config, args, kwargs)
        raise_if_single(failures, found)
        reason = None
        if not found:
            reason = ALL_FAILED if failures else SILENT_ZERO
            reason = spoken.reason if spoken else reason
        return Enumeration(
            self.kernel_name,
            count.points,
            tuple({part.text: part for _, parts in found for part in parts}.values()),
            reason,
            silent=not found and spoken is None and not failures,
            failures=tuple(failures),
        )

    def bound_launch(self, case: Case) -> BoundLaunch:
        """The launch that a case leads to, by name, every tensor as a `TritonWarmupTensor`.

        Raises `BindingError` for a case that does not fit.
        """
        raise NotImplementedError

    def _collect(
        self, config: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[tuple[TritonCompileKey, list[Declared]]], NoKeys | None, list[Exception]]:
        """The distinct keys of one registration with their parts, a spoken zero, and failures."""
        known = inspect.signature(self.provider).parameters
        for name in CONFIG_NAMES:
            if name in kwargs and name not in known:  # not for this provider under this name
                config = kwargs[name]
                kwargs = {other: kwargs[other] for other in kwargs if other != name}
        supplied = supply_config(self.kernel_name, self.provider, config, args, kwargs)
        given = given_cases(self.kernel_name, self.provider, args, supplied)
        failures = list(given.failures)
        found: dict[TritonCompileKey, list[Declared]] = {}
        seen: set[tuple[int, str] | None] = set()
        for case in given.cases:
            try:
                bound = self.bound_launch(case)
                token = _token(bound)
                if token is not None and token in seen:
                    continue
                key, parts = self._key(case, bound)
                seen.add(token)
            except Exception as error:  # one bad case must not cost the others
                error.add_note(f"in a case of {self.kernel_name} with {', '.join(case)}")
                failures.append(error)
                continue
            found.setdefault(key, parts)
        return list(found.items()), given.spoken, failures

    def _key(self, case: Case, bound: BoundLaunch) -> tuple[TritonCompileKey, list[Declared]]:
        from jitwarm.backends import backend_of

        named = TritonRecipe(
            self.kernel_name, tuple(bound.arguments.items()), tuple(bound.options.items())
        )
        launches = launches_of(self.kernel_name, bound)
        recipes = triton_recipes(bound, launches)
        texts = tuple(sorted({backend_of(recipe).key(recipe) for recipe in recipes}))
        key = TritonCompileKey(texts, tuple(bound.options), launches[0].choices, dict(case))
        choice = OpaqueRecipe(self, key)
        return key, triton_parts(named.canonical(), bound, launches, choice)


def _token(bound: BoundLaunch) -> tuple[int, str] | None:
    """Equal only for launches with one key, and cheap: of many cases that share a key all but the
    first are left out by it. None where that cannot be told so.

    Behind a wrapper launches with one key may have several choices to make.
    """
    if not is_jit_function(bound.kernel):
        return None
    from jitwarm.backends.triton.binder import binding_token

    token = binding_token(bound.kernel, bound.arguments, bound.options)
    return None if token is None else (id(bound.kernel), token)
