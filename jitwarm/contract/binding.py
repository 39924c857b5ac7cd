"""Which kernel argument takes which value: worked out once, then run as plain code.

The inputs of `__call__` and the launch kwargs it returns meet the kernel's argument names here. One
`BindingPlan` serves both sides: `call_code` turns it into a function for launches, `bind` reads the
same plan for warm-up.

    input x              -> the first of x, x_ptr, X, X_PTR that the kernel has
    launch kwarg K       -> kernel argument K (it wins over an input), or an option (num_warps)
    <name>_stride[_]<d>  -> stride(d) of what is bound to <name> or <name>_ptr (no digit: 0);
                            in upper case too
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from jitwarm.errors import BindingError

RESERVED = frozenset({"kernel", "_runtime_launcher", "_runtime_launcher_arg_count"})
_STRIDE = re.compile(r"(?P<name>.+)_(?P<word>stride|STRIDE)(?:_?(?P<dim>\d+))?")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value comes from: launch kwarg `launch`, or else input number `index`.

    With `dim` it is the `stride(dim)` of that.
    """

    launch: str | None = None
    index: int = -1
    dim: int | None = None

    def code(self) -> str:
        """The expression inside a generated call."""
        base = f"v{self.index}" if self.launch is None else f"kwargs[{self.launch!r}]"
        return base if self.dim is None else f"{base}.stride({self.dim})"

    def value(self, kwargs: Mapping[str, Any], values: Sequence[Any]) -> Any:
        """The same, evaluated."""
        base = values[self.index] if self.launch is None else kwargs[self.launch]
        return base if self.dim is None else base.stride(self.dim)


@dataclass(frozen=True, slots=True)
class BindingPlan:
    """The bound kernel arguments in kernel order and the options in launch order.

    `leading` counts the kernel arguments before the first one that is left to its default.
    """

    arguments: tuple[tuple[str, Source], ...]
    leading: int
    options: tuple[str, ...]

    def bind(
        self, kwargs: Mapping[str, Any], values: Sequence[Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments and options by name."""
        arguments = {name: source.value(kwargs, values) for name, source in self.arguments}
        return arguments, {name: kwargs[name] for name in self.options}


def plan_binding(
    label: str, kernel: Any, inputs: Sequence[str], launch_names: Sequence[str]
) -> BindingPlan:
    """Bind names to the arguments of `kernel`. `label` names the kernel in errors.

    An input that matches nothing is dropped. Raises `BindingError` for two inputs of one argument,
    and for an argument that nothing binds and that has no default.
    """
    names, optional = kernel_arguments(label, kernel)
    known = set(names)
    bound: dict[str, Source] = {
        name: Source(launch=name) for name in launch_names if name in known and name not in RESERVED
    }
    taken_by: dict[str, str] = {}
    for index, given in enumerate(inputs):
        upper = given.upper()
        target = next(
            (name for name in (given, f"{given}_ptr", upper, f"{upper}_PTR") if name in known), None
        )
        if target is None or (target in bound and target not in taken_by):
            continue
        if target in taken_by:
            raise BindingError(
                f"{label}: inputs {taken_by[target]!r} and {given!r} both bind kernel argument "
                f"{target!r}; rename one of them or pass the argument in the launch kwargs"
            )
        taken_by[target] = given
        bound[target] = Source(index=index)
    for name in names:
        if name not in bound:
            stride = _stride_source(name, bound)
            if stride is not None:
                bound[name] = stride
            elif name not in optional:
                raise BindingError(
                    f"{label}: nothing binds kernel argument {name!r} and it has no default; pass "
                    "it in the launch kwargs or give __call__ an input of that name "
                    f"(inputs: {', '.join(inputs) or 'none'}; "
                    f"launch kwargs: {', '.join(launch_names) or 'none'})"
                )
    leading = next((i for i, name in enumerate(names) if name not in bound), len(names))
    options = tuple(name for name in launch_names if name not in known and name not in RESERVED)
    return BindingPlan(
        tuple((name, bound[name]) for name in names if name in bound), leading, options
    )


def kernel_arguments(label: str, kernel: Any) -> tuple[tuple[str, ...], frozenset[str]]:
    """The argument names of a kernel object in order, and those that a launch may leave out.

    Names come from `arg_names`, or from the signature of a wrapped `func`. Left out may be what has
    a default, and what heuristics or an autotuner's configurations supply. Raises `BindingError` (a
    TypeError) for any other object.
    """
    names = getattr(kernel, "arg_names", None)
    if names is None:
        function = getattr(kernel, "func", None)
        if not callable(function):
            raise BindingError(
                f"{label}: {kernel!r} has neither arg_names nor a wrapped func, "
                "so its arguments are unknown"
            )
        names = tuple(inspect.signature(function).parameters)
    optional: set[str] = set()
    layer = kernel
    while layer is not None and not inspect.isfunction(layer):
        supplied = getattr(layer, "values", None)
        optional.update(supplied if isinstance(supplied, dict) else ())
        for config in getattr(layer, "configs", None) or ():
            optional.update(config.kwargs)
        layer = getattr(layer, "fn", None) or getattr(layer, "func", None)
    if layer is not None:
        optional.update(
            p.name for p in inspect.signature(layer).parameters.values() if p.default is not p.empty
        )
    return tuple(names), frozenset(optional)


def call_code(
    label: str,
    plan: BindingPlan,
    inputs: int,
    *,
    head: str,
    positional: int,
    tail: tuple[str, ...] = (),
) -> Callable[..., Any]:
    """Generate `call(target, kernel, grid, kwargs, values)`: one launch according to `plan`.

    `head` is the opening of the call expression (`kernel.run(`), `positional` how many leading
    kernel arguments go by position, `tail` keyword arguments written before the options. Nothing is
    looked up by name that is known here: that is what keeps the class style within a few per cent
    of a hand-written launch. Raises `BindingError` for a name that cannot be written in a call.
    """
    by_name = plan.arguments[positional:]
    written = [name for name, _ in by_name] + list(plan.options)
    fixed = {part.partition("=")[0] for part in tail}
    for name in written:
        if not name.isidentifier() or keyword.iskeyword(name) or name in fixed:
            raise BindingError(f"{label}: {name!r} cannot be passed by name in a launch; rename it")
    parts = [source.code() for _, source in plan.arguments[:positional]]
    parts += [f"{name}={source.code()}" for name, source in by_name]
    parts += tail
    parts += [f"{name}=kwargs[{name!r}]" for name in plan.options]
    unpack = f"    {', '.join(f'v{i}' for i in range(inputs))}, = values\n" if inputs else ""
    head = f"def call(target, kernel, grid, kwargs, values):\n{unpack}    return {head}"
    namespace: dict[str, Any] = {"__name__": __name__}
    source = compile(f"{head}{', '.join(parts)})\n", f"<launch of {label}>", "exec")
    exec(source, namespace)  # noqa: S102 - written above, from checked names
    call: FunctionType = namespace["call"]
    carry_name(call, "launch", f"{label}.launch")
    return call


def carry_name(generated: FunctionType, name: str, qualified: str) -> None:
    """Give a generated function the name of what it stands for, in errors and in tracebacks."""
    generated.__name__, generated.__qualname__ = name, qualified
    generated.__code__ = generated.__code__.replace(co_name=name, co_qualname=qualified)


def _stride_source(name: str, bound: Mapping[str, Source]) -> Source | None:
    match = _STRIDE.fullmatch(name)
    if match is None:
        return None
    suffix = "_ptr" if match["word"] == "stride" else "_PTR"
    for owner in (match["name"], match["name"] + suffix):
        source = bound.get(owner)
        if source is not None and source.dim is None:
            return Source(source.launch, source.index, int(match["dim"] or 0))
    return None
