"""A declaration beside an unchanged `@triton.jit` kernel: which of its launches must be ready."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

from jitwarm.backends.triton.naming import import_path
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.declare.config_argument import supply_config
from jitwarm.declare.enumeration import Declared, Enumeration
from jitwarm.declare.launch import LaunchCase
from jitwarm.declare.nokeys import NoKeys
from jitwarm.errors import DeclarationError

Cases = Callable[..., "Iterable[LaunchCase] | LaunchCase | NoKeys"]


class Declaration:
    """Launch cases of one kernel, as a function of the configuration. Made by `declare`."""

    def __init__(self, kernel: Any, cases: Cases, name: str) -> None:
        """`kernel` stays as it is: launches remain `kernel[grid](...)` and cost what they cost."""
        # Autotuners and heuristics have both attributes too, but around another kernel.
        if not hasattr(kernel, "arg_names") or not inspect.isfunction(getattr(kernel, "fn", None)):
            raise DeclarationError(
                f"{name}: declare() takes a @triton.jit function, got {type(kernel).__name__}"
            )
        self.kernel, self.cases, self.kernel_name = kernel, cases, name
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

        Raises `DeclarationError` for a case that is not one.
        """
        given = self.cases(
            *args, **supply_config(self.kernel_name, self.cases, config, args, kwargs)
        )
        points = 0
        declared: dict[str, TritonRecipe] = {}
        cases, spoken = self._cases_of(given)
        for case in cases:
            for point in case.points(self.kernel_name):
                points += 1
                recipe = self._recipe(point)
                declared.setdefault(recipe.canonical(), recipe)
        reason = None
        if not declared:
            reason = spoken.reason if spoken else "its declaration yielded no launch and no reason"
        return Enumeration(
            self.kernel_name,
            points,
            tuple(Declared(text, recipe) for text, recipe in declared.items()),
            reason,
            silent=not declared and spoken is None,
        )

    def _cases_of(self, given: Any) -> tuple[list[LaunchCase], NoKeys | None]:
        """The cases that the declaration's function gave, or its reason for none.

        A function with a `yield` anywhere is a generator, and its `return NoKeys(...)` arrives as
        the generator's value.
        """
        if isinstance(given, NoKeys):
            return [], given
        if isinstance(given, LaunchCase):
            return [given], None
        returned: list[Any] = []

        def collect() -> Generator[Any, None, None]:
            returned.append((yield from given))

        if not isinstance(given, Iterable):
            raise self._not_a_case(given)
        cases = list(collect())
        for case in cases:
            if not isinstance(case, LaunchCase):
                raise self._not_a_case(case)
        return cases, returned[0] if isinstance(returned[0], NoKeys) else None

    def _not_a_case(self, given: object) -> DeclarationError:
        return DeclarationError(
            f"{self.kernel_name}: a declaration yields launch(...) cases, got "
            f"{type(given).__name__}; to say that there is none, return NoKeys('reason')"
        )

    def _recipe(self, point: Mapping[str, object]) -> TritonRecipe:
        names = self.kernel.arg_names
        return TritonRecipe(
            import_path(self.kernel),
            tuple((name, point[name]) for name in names if name in point),
            tuple((name, value) for name, value in point.items() if name not in names),
        )


def declare(kernel: Any, *, name: str | None = None) -> Callable[[Cases], Declaration]:
    """Declare which launches of `kernel` must be ready at start-up.

    Decorates a function of the configuration (its parameter `config` or `vllm_config`, if it has
    one, is supplied by the registry; the others come from `register_warmup`) that returns or yields
    `launch(...)` cases, or returns `NoKeys(reason)`. `name` is what reports show, by default the
    function's name.
    """
    return lambda cases: Declaration(kernel, cases, name or cases.__name__)
