"""`kernel_launcher`: a `__call__` that returns a launch specification becomes one that launches.

The decorated function is generated with the signature of the original, and each (kernel, launch
kwarg names) gets one generated call. A launch then costs the specification, one look-up and the
kernel's own `run`: no `inspect`, no mapping of inputs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, NamedTuple, ParamSpec, cast

from jitwarm.contract.binding import BindingPlan, call_code, carry_name, plan_binding
from jitwarm.errors import BindingError, DeclarationError

P = ParamSpec("P")


class LaunchSpec(NamedTuple):
    """One launch: `grid` (None launches nothing), the launch kwargs, and what the call returns.

    A plain tuple will do.
    """

    grid: Any
    kwargs: Mapping[str, Any]
    outputs: Any = None


@dataclass(frozen=True, slots=True)
class BoundLaunch:
    """A launch by name, for warm-up: arguments in kernel order, options in launch order.

    `grid` is None for a launch that would be left out.
    """

    kernel: Any
    arguments: dict[str, Any]
    options: dict[str, Any]
    grid: Any = None


class InputBinding:
    """The bindings of one tuple of input names to the kernels and launch kwargs they meet."""

    def __init__(self, names: tuple[str, ...]) -> None:
        """`names` are the inputs in the order of the values that `run` and `bind` get."""
        self.names = names
        # Kernels are told apart by id: hashing a JITFunction hashes its source. The entry keeps the
        # kernel alive, so that no other object gets its id.
        self._calls: dict[tuple[Any, ...], tuple[Any, Callable[..., Any]]] = {}
        self._plans: dict[tuple[Any, ...], tuple[Any, BindingPlan]] = {}

    def run(self, owner: Any, spec: Any, values: tuple[Any, ...]) -> Any:
        """Launch `spec` with `values` as inputs and return its outputs."""
        size = len(spec) if isinstance(spec, tuple) else 0
        outputs = None
        if size == 2:
            grid, kwargs = spec
        elif size == 3:
            grid, kwargs, outputs = spec
        else:
            raise _not_a_spec(owner, spec)
        if grid is None:
            return outputs
        kernel = kwargs.get("kernel")
        if kernel is None:
            kernel = owner.kernel
        adapter = kwargs.get("_runtime_launcher")
        count = None if adapter is None else kwargs.get("_runtime_launcher_arg_count", 0)
        entry = self._calls.get((id(kernel), count, *kwargs))
        if entry is None:
            entry = self._make_call(owner, kernel, count, tuple(kwargs))
        entry[1](adapter, kernel, grid, kwargs, values)
        return outputs

    def bind(self, owner: Any, spec: Any, values: tuple[Any, ...]) -> BoundLaunch:
        """The binding that `run` uses, by name; a run-time adapter does not matter."""
        size = len(spec) if isinstance(spec, tuple) else 0
        if size not in {2, 3} or not isinstance(spec[1], Mapping):
            raise _not_a_spec(owner, spec)
        kwargs = spec[1]
        kernel = kwargs.get("kernel")
        if kernel is None:
            kernel = owner.kernel
        arguments, options = self._plan(owner, kernel, tuple(kwargs)).bind(kwargs, values)
        return BoundLaunch(kernel, arguments, options, spec[0])

    def prepare(self, owner: Any, kernel: Any, kwargs: Mapping[str, Any]) -> None:
        """Generate the call that `run` will use for these launch kwargs, if it is not there yet.

        Warm-up does this: otherwise the first launch pays for it (0.1 ms a kernel).
        """
        adapter = kwargs.get("_runtime_launcher")
        count = None if adapter is None else kwargs.get("_runtime_launcher_arg_count", 0)
        if (id(kernel), count, *kwargs) not in self._calls:
            self._make_call(owner, kernel, count, tuple(kwargs))

    def _plan(self, owner: Any, kernel: Any, launch_names: tuple[str, ...]) -> BindingPlan:
        entry = self._plans.get((id(kernel), *launch_names))
        if entry is None:
            entry = kernel, plan_binding(_label(owner), kernel, self.names, launch_names)
            self._plans[(id(kernel), *launch_names)] = entry
        return entry[1]

    def _make_call(
        self, owner: Any, kernel: Any, count: int | None, launch_names: tuple[str, ...]
    ) -> tuple[Any, Callable[..., Any]]:
        plan, label = self._plan(owner, kernel, launch_names), _label(owner)
        inputs = len(self.names)
        if count is not None:
            if not 0 <= count <= plan.leading:
                raise BindingError(
                    f"{label}: _runtime_launcher_arg_count is {count}, but only the first "
                    f"{plan.leading} kernel arguments are bound without a gap"
                )
            call = call_code(label, plan, inputs, head="target(kernel, grid, ", positional=count)
        elif hasattr(kernel, "run"):
            fixed = ("grid=grid", "warmup=False")
            call = call_code(
                label, plan, inputs, head="kernel.run(", positional=plan.leading, tail=fixed
            )
        elif hasattr(type(kernel), "__getitem__"):
            # A wrapper around a plain function gets names, as in a launch written by hand.
            call = call_code(label, plan, inputs, head="kernel[grid](", positional=0)
        else:
            raise BindingError(
                f"{label}: {kernel!r} can be launched neither by run(...) nor by kernel[grid](...)"
            )
        entry = self._calls[(id(kernel), count, *launch_names)] = (kernel, call)
        return entry


# The binding of inputs that arrive as a mapping with these names.
binding_of = functools.cache(InputBinding)


class KernelLaunch:
    """The base `launch` of kernels whose arguments are bound by name; it may be overridden."""

    kernel: Any

    def launch(self, spec: Any, inputs: Mapping[str, Any]) -> Any:
        """Launch `spec`, (grid, kwargs[, outputs]), with the call's inputs; returns the outputs."""
        return binding_of(tuple(inputs)).run(self, spec, tuple(inputs.values()))


@dataclass(frozen=True, slots=True)
class Launcher:
    """What a decorated `__call__` carries as `launcher`.

    `function` is the function as written, `binding` binds its inputs, and `collect` takes the same
    arguments and returns the inputs as a tuple, defaults included.
    """

    function: Callable[..., Any]
    binding: InputBinding
    collect: Callable[..., tuple[Any, ...]]


def kernel_launcher(
    function: Callable[Concatenate[Any, P], Any],
) -> Callable[Concatenate[Any, P], Any]:
    """Turn a `__call__` that returns a launch specification into one that launches.

    A specification is (grid, kwargs), (grid, kwargs, outputs) or what else the class's `launch`
    takes.

    Calling the object computes that specification and hands it, with the call's inputs by name, to
    `launch`; where `launch` is the base one this takes a short cut with the same result. A class
    with `bind_launch_inputs = False` gets no inputs. Name and docstring stay.
    """
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        parameters[0].POSITIONAL_ONLY,
        parameters[0].POSITIONAL_OR_KEYWORD,
    ):
        raise DeclarationError(
            f"{function.__qualname__}: kernel_launcher decorates a method, and this takes no self"
        )
    owner, names = parameters[0].name, tuple(p.name for p in parameters[1:])
    binding = InputBinding(names)
    signature, values = signature_code(parameters), f"({', '.join(names)},)" if names else "()"
    by_name = "{" + ", ".join(f"{name!r}: {name}" for name in names) + "}"
    namespace: dict[str, Any] = {
        "__name__": __name__,
        "_jw_function": function,
        "_jw_base": KernelLaunch.launch,
        "_jw_run": binding.run,
        "_jw_getattr": getattr,
    }
    code = f"""
def collect({signature}):
    return {values}
def call({signature}):
    _jw_spec = _jw_function({forward_code(parameters)})
    _jw_launch = {owner}.launch
    _jw_bind = _jw_getattr({owner}, "bind_launch_inputs", True)
    if _jw_bind and _jw_getattr(_jw_launch, "__func__", None) is _jw_base:
        return _jw_run({owner}, _jw_spec, {values})
    return _jw_launch(_jw_spec, {by_name} if _jw_bind else {{}})
"""
    exec(compile(code, f"<launcher of {function.__qualname__}>", "exec"), namespace)  # noqa: S102
    collect, call = namespace["collect"], namespace["call"]
    for generated in (collect, call):
        carry_name(generated, function.__name__, function.__qualname__)
        generated.__defaults__ = function.__defaults__
        generated.__kwdefaults__ = function.__kwdefaults__
    call.launcher = Launcher(function, binding, collect)
    return cast("Callable[Concatenate[Any, P], Any]", functools.wraps(function)(call))


_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def signature_code(parameters: list[inspect.Parameter]) -> str:
    """The parameter list as source, without defaults: those are set on the generated function."""
    parts: list[str] = []
    starred = False
    for index, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        starred = starred or p.kind is p.VAR_POSITIONAL
        parts.append(_STARS.get(p.kind, "") + p.name)
        following = parameters[index + 1].kind if index + 1 < len(parameters) else None
        if p.kind is p.POSITIONAL_ONLY and following is not p.POSITIONAL_ONLY:
            parts.append("/")
    return ", ".join(parts)


def forward_code(parameters: list[inspect.Parameter]) -> str:
    """The arguments of a call that passes every parameter on."""
    return ", ".join(
        f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else _STARS.get(p.kind, "") + p.name
        for p in parameters
    )


def _not_a_spec(owner: Any, spec: Any) -> DeclarationError:
    return DeclarationError(
        f"{_label(owner)}: __call__ returned {spec!r}; return (grid, launch kwargs) or (grid, "
        "launch kwargs, outputs)"
    )


def _label(owner: Any) -> str:
    return getattr(owner, "kernel_name", None) or type(owner).__qualname__
