"""A declaration beside an unchanged `@triton.jit` kernel: which of its launches must be ready."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

from jitwarm import keys
from jitwarm.backends.triton.naming import import_path
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.declare.config_argument import supply_config
from jitwarm.declare.enumeration import (
    ALL_FAILED,
    Declared,
    Enumeration,
    raise_if_single,
    taken,
)
from jitwarm.declare.launch import LaunchCase
from jitwarm.declare.nokeys import NoKeys
from jitwarm.declare.spelling import launch_text, name_problem, required_arguments
from jitwarm.declare.tensor import dtype_name
from jitwarm.errors import BindingError, DeclarationError, KeyValueError

Cases = Callable[..., "Iterable[LaunchCase] | LaunchCase | NoKeys"]

# What a launch has and a key does not depend on, with the reason.
_NOT_DECLARED = {
    "grid": "no key depends on it",
    "warmup": "planning and warming launch nothing",
}


class Declaration:
    """Launch cases of one kernel, as a function of the configuration. Made by `declare`."""

    def __init__(self, kernel: Any, cases: Cases, name: str) -> None:
        """`kernel` stays as it is: launches remain `kernel[grid](...)` and cost what they cost."""
        # Autotuners and heuristics have both attributes too, but around another kernel.
        if not hasattr(kernel, "arg_names") or not inspect.isfunction(getattr(kernel, "fn", None)):
            raise _not_a_function(kernel, name)
        self.kernel, self.cases, self.kernel_name = kernel, cases, name
        self._required = frozenset(required_arguments(kernel))
        self.__doc__ = cases.__doc__

    def __repr__(self) -> str:
        """Name and kernel."""
        return f"Declaration({self.kernel_name} of {import_path(self.kernel)})"

    def register_warmup(self, *args: Any, **kwargs: Any) -> None:
        """Register with the active registry; the arguments go to the declaration's function.

        Nothing is compiled.
        """
        from jitwarm.registry import JitWarmupRegistry

        JitWarmupRegistry.register(self, *args, **kwargs)

    def enumerate_keys(
        self, config: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Enumeration:
        """The launch cases of one registration, expanded, as recipes.

        Raises `DeclarationError` for a case that is not one, `BindingError` for one that lacks an
        argument or holds a real tensor, `KeyValueError` for an argument that is no value.
        """
        failures: list[Exception] = []
        cases, spoken = self._evaluate(config, args, kwargs, failures)
        points = 0
        declared: dict[str, TritonRecipe] = {}
        for case in cases:
            for point in self._points(case, failures):
                points += 1
                try:
                    recipe = self._recipe(point)
                    declared.setdefault(self._text(recipe, point), recipe)
                except Exception as error:  # one bad launch must not cost the others
                    failures.append(error)
        raise_if_single(failures, declared)
        reason = None
        if not declared:
            silent = ALL_FAILED if failures else "its declaration yielded no launch and no reason"
            reason = spoken.reason if spoken else silent
        return Enumeration(
            self.kernel_name,
            points,
            tuple(Declared(text, recipe) for text, recipe in declared.items()),
            reason,
            silent=not declared and spoken is None and not failures,
            failures=tuple(failures),
        )

    def _evaluate(
        self,
        config: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        failures: list[Exception],
    ) -> tuple[list[LaunchCase], NoKeys | None]:
        """What the declaration's function gives for one registration."""
        supplied = supply_config(self.kernel_name, self.cases, config, args, kwargs)
        try:
            return self._cases_of(self.cases(*args, **supplied), failures)
        except DeclarationError as error:
            raise self._named(error) from error

    def _named(self, error: DeclarationError) -> DeclarationError:
        """The error with the kernel's name: `launch` and `TensorSpec` do not know it."""
        known = str(error).startswith(f"{self.kernel_name}: ")
        if known or type(error) not in (DeclarationError, BindingError):
            return error
        renamed = type(error)(f"{self.kernel_name}: {error}")
        renamed.__cause__ = error
        return renamed

    def _cases_of(
        self, given: Any, failures: list[Exception]
    ) -> tuple[list[LaunchCase], NoKeys | None]:
        """The cases that the declaration's function gave, or its reason for none.

        A function with a `yield` anywhere is a generator, and its `return NoKeys(...)` arrives as
        the generator's value.
        """
        if isinstance(given, NoKeys):
            return [], given
        if isinstance(given, LaunchCase):
            return [given], None
        returned: list[Any] = [None]

        def collect() -> Generator[Any, None, None]:
            returned[0] = yield from given

        if not isinstance(given, Iterable):
            raise self._not_a_case(given)
        found, errors = taken(collect())
        failures += [self._named(e) if isinstance(e, DeclarationError) else e for e in errors]
        cases = [case for case in found if isinstance(case, LaunchCase)]
        failures += [self._not_a_case(one) for one in found if not isinstance(one, LaunchCase)]
        return cases, returned[0] if isinstance(returned[0], NoKeys) else None

    def _points(
        self, case: LaunchCase, failures: list[Exception]
    ) -> Iterator[Mapping[str, object]]:
        """The launches of a case; one whose domains are wrong is a failure of its own."""
        try:
            yield from case.points(self.kernel_name)
        except Exception as error:
            failures.append(error)

    def _text(self, recipe: TritonRecipe, point: Mapping[str, object]) -> str:
        try:
            return recipe.canonical()
        except KeyValueError as error:
            raise self._not_a_value(point, error) from error

    def _not_a_case(self, given: object) -> DeclarationError:
        return DeclarationError(
            f"{self.kernel_name}: a declaration yields launch(...) cases, got "
            f"{type(given).__name__}; to say that there is none, return NoKeys('reason')"
        )

    def _not_a_value(self, point: Mapping[str, object], error: KeyValueError) -> Exception:
        """The same error with the kernel and the argument, and for a tensor with its stand-in."""
        for name, value in point.items():
            try:
                keys.canonical(value)
            except KeyValueError as problem:
                where = f"{self.kernel_name}: argument {name!r} of launch(...)"
                tensor = _tensor_in(value)
                if tensor is None:
                    return KeyValueError(f"{where}: {problem}")
                return BindingError(
                    f"{where} holds a real {type(tensor).__qualname__}, and a declaration has no "
                    f'storage: write TensorSpec("{dtype_name(tensor.dtype)}", aligned=...) instead'
                )
        return error  # pragma: no cover - one of the values was refused

    def _recipe(self, point: Mapping[str, object]) -> TritonRecipe:
        names = self.kernel.arg_names
        for name, reason in _NOT_DECLARED.items():
            if name in point and name not in names:
                raise DeclarationError(
                    f"{self.kernel_name}: {name!r} is given to launch(...), and a declaration has "
                    f"no {name} ({reason}): leave it out"
                )
        if not self._required.issubset(point):
            # Only here, on the way to an error: it asks for the device.
            from jitwarm.backends.triton.binder import option_names

            problem = name_problem(self.kernel, point, option_names(self.kernel))
            raise BindingError(f"{self.kernel_name}: {launch_text(point)}: {problem}")
        return TritonRecipe(
            import_path(self.kernel),
            tuple((name, point[name]) for name in names if name in point),
            tuple((name, value) for name, value in point.items() if name not in names),
        )


def _not_a_function(kernel: Any, name: str) -> DeclarationError:
    """With the way out where it is one of Triton's wrappers."""
    from jitwarm.backends.triton.unwrap import is_wrapped

    problem = f"{name}: declare() takes a @triton.jit function, got {type(kernel).__name__}"
    if is_wrapped(kernel):
        problem += (
            ", which decides itself what it launches: declare it with a class (TritonJitKernel) or "
            "with @triton_kernel_dispatcher_with_warmup (docs/contract-styles.md)"
        )
    return DeclarationError(problem)


def _tensor_in(value: object) -> Any:
    """The first real tensor in an argument or in its tuples, or None."""
    if isinstance(value, tuple | list):
        return next((found for item in value if (found := _tensor_in(item)) is not None), None)
    return value if hasattr(value, "data_ptr") and hasattr(value, "dtype") else None


def declare(kernel: Any, *, name: str | None = None) -> Callable[[Cases], Declaration]:
    """Declare which launches of `kernel` must be ready at start-up.

    Decorates a function of the configuration (its parameter `config` or `vllm_config`, if it has
    one, is supplied by the registry; the others come from `register_warmup`) that returns or yields
    `launch(...)` cases, or returns `NoKeys(reason)`. `name` is what reports show, by default the
    function's name.
    """
    return lambda cases: Declaration(kernel, cases, name or cases.__name__)
