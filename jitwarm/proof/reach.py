"""From the arguments of one launch to the backend keys that it needs.

Nothing is compiled and nothing is launched: the same `__call__`, `dispatch` and binder that a real
launch goes through are asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jitwarm import keys
from jitwarm.backends import backend_of
from jitwarm.backends.triton.compiler import TritonBackend
from jitwarm.backends.triton.naming import import_path
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.backends.triton.residents import Asked, Respelt
from jitwarm.backends.triton.unwrap import InnerLaunch, inner_launches, innermost, is_wrapped
from jitwarm.contract.autotune import is_triton_kernel, launches_of
from jitwarm.contract.kernel import JitKernel
from jitwarm.contract.triton import TritonJitKernel
from jitwarm.declare.enumeration import Declared
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import BindingError, DeclarationError, KeyValueError, WrongKindError
from jitwarm.proof.keyfunction import BACKEND, KeyFunction, fields_of_key, texts_of
from jitwarm.proof.plan import ProofPlan, helpers_of

# Values whose text in Triton's own key says all of them.
_PLAIN = (int, bool, str, float, type(None), TensorSpec)


@dataclass(frozen=True, slots=True)
class Reached:
    """What one launch needs.

    `needs` are (backend, backend key) pairs in order, `dispatched` the declared keys that it went
    through by their text, `choices` what an autotuner has to choose for, `arguments` those of the
    native kernel (the fields of the key where there is none), `program` the text of what a
    `KeyFunction` would build. `respelt` are those of warmed keys that Triton does not find in
    memory, `own` the launches' own keys where a warmed one that compares equal serves them.
    """

    needs: tuple[tuple[str, str], ...]
    arguments: Mapping[str, Any]
    dispatched: Mapping[str, Any] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    program: str | None = None
    respelt: tuple[Respelt, ...] = ()
    own: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The backend keys alone."""
        return tuple(key for _, key in self.needs)


# A call without a grid.
NOTHING = Reached((), {})


class Reach:
    """How launches of one kernel are evaluated.

    `name` is what reports call the kernel, `kernel` the object, `function` the JITFunction at its
    core, if there is one.
    """

    name: str
    kernel: Any
    backend: str = "triton"
    function: Any = None

    def at(self, arguments: Mapping[str, Any]) -> Reached:
        """What a launch with these arguments needs.

        Raises what the launch itself would raise, and `KeyValueError` for a key that is no value.
        """
        raise NotImplementedError

    def round_trip(self, key: Any) -> str:
        """What is wrong with the way from a declared key back to a launch, in words; else empty."""
        return ""

    def built(self, key: Any) -> tuple[str, ...]:
        """The backend keys that the warm-up inputs of a declared key lead to, if that is known."""
        return ()


def reach_of(kernel: Any, planned: ProofPlan | None = None) -> Reach:
    """How launches of `kernel` are evaluated. Raises `WrongKindError` for what is no kernel."""
    planned = ProofPlan(()) if planned is None else planned
    if isinstance(kernel, TritonJitKernel):
        return _ClassReach(kernel, planned)
    if isinstance(kernel, JitKernel):
        return _DispatchReach(kernel, planned)
    if isinstance(kernel, KeyFunction):
        return _FunctionReach(kernel)
    if isinstance(kernel, type):  # a class has the native kernel as an attribute, as its objects do
        raise WrongKindError(
            f"{kernel.__qualname__} is a class, and an object of it is a kernel: give the one that "
            "is registered and launched"
        )
    inner = kernel if is_triton_kernel(kernel) else getattr(kernel, "kernel", None)
    if is_triton_kernel(inner):
        name = getattr(kernel, "kernel_name", None) if inner is not kernel else None
        if name is None:
            name = planned.name(import_path(innermost(inner)))
        return _NativeReach(str(name), inner, planned)
    raise WrongKindError(
        f"{kernel!r} is no kernel that can be proved: give an object of a contract class, a "
        "declaration, a @triton.jit function or a KeyFunction"
    )


_Token = tuple[int, str, str]


class _TritonKeys:
    """Backend keys of Triton launches, asked of the binder once for each class of arguments.

    They are held against the launches of `planned`, if it is given, as Triton looks one up.
    """

    def __init__(self, planned: ProofPlan | None = None) -> None:
        import triton

        TritonBackend().prepare(())  # raises where there is no device to ask, before any launch
        self._device = int(triton.runtime.driver.active.get_current_device())
        self._residents = planned.residents if planned is not None else None
        self._known: dict[_Token, Asked] = {}

    def of(self, launch: InnerLaunch) -> Asked:
        token = self._token(launch)
        asked = self._known.get(token) if token else None
        if asked is None:
            recipe = TritonRecipe(
                import_path(launch.function),
                tuple(launch.arguments.items()),
                tuple(launch.options.items()),
            )
            if self._residents is not None:
                asked = self._residents.ask(recipe)
            else:
                text = backend_of(recipe).key(recipe)
                asked = Asked(text, text)
            if token:
                self._known[token] = asked
        return asked

    def _token(self, launch: InnerLaunch) -> _Token | None:
        """Equal for two launches only if their keys are; None where the binder alone cannot say."""
        for value in (*launch.arguments.values(), *launch.options.values()):
            if type(value) not in _PLAIN:
                return None
        function = launch.function
        try:
            binder = function.device_caches[self._device][4]
            _, specialization, options = binder(**launch.arguments, **launch.options)
        except Exception:  # a launch that Triton refuses: the backend says why
            return None
        # As text: 1, True and 1.0 are equal, and three keys.
        return id(function), repr(specialization), repr(options)

    def reached(
        self, launches: list[InnerLaunch], dispatched: Mapping[str, Any] | None = None
    ) -> Reached:
        asked = [self.of(launch) for launch in launches]
        first = launches[0]
        return Reached(
            tuple(("triton", one.text) for one in asked),
            first.arguments | first.options,
            dispatched or {},
            first.choices,
            respelt=tuple(one.respelt for one in asked if one.respelt is not None),
            own=tuple(one.own for one in asked if one.own != one.text),
        )


class _NativeReach(Reach):
    """Launches of a `@triton.jit` function as they are written, options included."""

    def __init__(self, name: str, kernel: Any, planned: ProofPlan) -> None:
        self.name, self.kernel = name, kernel
        self.function = innermost(kernel)
        # What a wrapper adds to a launch is Triton's to spell.
        self._keys = _TritonKeys(None if is_wrapped(kernel) else planned)

    def at(self, arguments: Mapping[str, Any]) -> Reached:
        names = self.kernel.arg_names
        given = dict(arguments)
        grid: Any = (1,)
        if "grid" in given and "grid" not in names:
            grid = given.pop("grid")
            if grid is None:
                return NOTHING
        bound = {name: given[name] for name in names if name in given}
        options = {name: value for name, value in given.items() if name not in bound}
        try:
            return self._keys.reached(inner_launches(self.name, self.kernel, bound, options, grid))
        except BindingError as error:
            if len(bound) == len(names):
                raise
            # The names of a function that was decorated are at hand, and not meant.
            native = f"the native {self.function.fn.__name__}({', '.join(names)})"
            raise BindingError(f"{error}; give the arguments and options of {native}") from error


class _ContractReach(Reach):
    """What both sides of the contract have in common: declared keys and their parts."""

    def __init__(self, kernel: Any, planned: ProofPlan) -> None:
        self.kernel, self.name = kernel, kernel.kernel_name
        self._path = planned.path_of(kernel)
        self._with_helpers = planned.has_recipes
        self._texts: dict[Any, str] = {}
        self._parts: dict[str, tuple[tuple[str, str], ...]] = {}

    def text(self, key: Any) -> str:
        try:
            exact = keys.exact(key)
        except KeyValueError:
            texts_of(self.name, fields_of_key(key))  # says which field
            raise
        text = self._texts.get(exact)
        if text is None:
            text = self._texts[exact] = self.kernel.key_text(key)
        return text

    def needs_of(self, key: Any) -> tuple[tuple[str, str], ...]:
        """The backend keys of a declared key, remembered: a probe of a library may be slow."""
        text = self.text(key)
        needs = self._parts.get(text)
        if needs is None:
            needs = tuple(
                need for part in self.kernel.parts(key) for need in self._needs_of_part(part)
            )
            self._parts[text] = needs
        return needs

    def _needs_of_part(self, part: Declared) -> list[tuple[str, str]]:
        backend = backend_of(part.recipe)
        key = backend.key(part.recipe)
        if backend.name == "opaque" and self._path is not None:
            key = f"{self._path}[{key.partition('[')[2]}"
        helpers = helpers_of(part.recipe) if self._with_helpers else ()
        return [(backend.name, text) for text in (key, *helpers)]


class _DispatchReach(_ContractReach):
    """Launches of a class that is no Triton class, by the inputs of its `dispatch`."""

    def __init__(self, kernel: Any, planned: ProofPlan) -> None:
        super().__init__(kernel, planned)
        self.backend = "-"

    def at(self, arguments: Mapping[str, Any]) -> Reached:
        key = self.kernel.dispatch(**arguments)
        needs = self.needs_of(key)
        self.backend = needs[0][0] if needs else self.backend
        return Reached(needs, fields_of_key(key), {self.text(key): key})


class _ClassReach(_ContractReach):
    """Launches of a Triton class, by the arguments of its `__call__`."""

    def __init__(self, kernel: Any, planned: ProofPlan) -> None:
        super().__init__(kernel, planned)
        self._keys = _TritonKeys()
        inner = getattr(kernel, "kernel", None)
        own = type(kernel).compile is not TritonJitKernel.compile
        self._opaque = own or type(kernel).recipe is not TritonJitKernel.recipe
        if is_triton_kernel(inner):
            self.function = innermost(inner)

    def at(self, arguments: Mapping[str, Any]) -> Reached:
        call = self.kernel.evaluate_call(arguments)
        if not call.launches:
            return NOTHING
        dispatched = {self.text(key): key for key in call.dispatched}
        bound = None if self._opaque else call.bound()
        if bound is not None and is_triton_kernel(bound.kernel):
            return self._keys.reached(launches_of(self.name, bound), dispatched)
        if not dispatched:
            raise DeclarationError(
                f"{self.name}: only its compile knows its binaries, and __call__ asked dispatch "
                "for no key, so what a launch needs is unknown; call self.dispatch in __call__"
            )
        needs = tuple(need for key in dispatched.values() for need in self.needs_of(key))
        self.backend = needs[0][0] if needs else self.backend
        return Reached(needs, bound.arguments if bound is not None else {}, dispatched)

    def round_trip(self, key: Any) -> str:
        try:
            self.kernel.bound_launch(key)
        except DeclarationError as error:
            return str(error)
        except Exception:  # inputs that only declared keys have: the key is missing, or has failed
            return ""
        return ""

    def built(self, key: Any) -> tuple[str, ...]:
        try:
            return self.at(self.kernel.warmup_inputs(key)).keys
        except Exception:  # a key that cannot be bound is told where it is planned
            return ()


class _FunctionReach(Reach):
    """Launches of a `KeyFunction`, by the inputs of its key."""

    backend = BACKEND

    def __init__(self, kernel: KeyFunction) -> None:
        self.kernel, self.name = kernel, kernel.name

    def at(self, arguments: Mapping[str, Any]) -> Reached:
        key = self.kernel.key(**arguments)
        program = self.kernel.program
        text = self.kernel.text(key)
        built = None if program is None else str(program(**arguments))
        return Reached(((BACKEND, text),), self.kernel.fields(key), {text: key}, program=built)
