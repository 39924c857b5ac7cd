"""The decorator style: a dispatch function, or a native kernel, with the inputs of its launches.

    @triton_kernel_dispatcher_with_warmup(warmup_inputs=cases, kernel=_scale)
    def scale(x, out, n, *, block=256):
        return (triton.cdiv(n, block),), {"BLOCK": block, "num_warps": 4}, out

`scale(x, out, n)` launches. For warm-up the same function is called with the inputs that `cases`
gives, tensors as `TritonWarmupTensor`, and what it returns is bound as a launch is; only the launch
itself is left out. So a name that the function does not have is an error when keys are enumerated,
and its defaults take part in them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from jitwarm.contract.autotune import is_triton_kernel
from jitwarm.contract.binding import carry_name
from jitwarm.contract.dispatch_tensors import evaluate
from jitwarm.contract.launcher import BoundLaunch, InputBinding, forward_code, signature_code
from jitwarm.contract.odometer import Case
from jitwarm.contract.warmed_kernel import WarmedKernel
from jitwarm.declare.spelling import nearest
from jitwarm.declare.torch_tensor import without_storage
from jitwarm.errors import BindingError, WrongKindError


class DispatchedKernel(WarmedKernel):
    """A dispatch function: called like the function, it launches what the function returns.

    Each object has a class of its own, whose `__call__` is generated with the function's signature.
    """

    function: ClassVar[Callable[..., Any]]
    binding: ClassVar[InputBinding]
    collect: ClassVar[Callable[..., tuple[Any, ...]]]

    def bound_launch(self, case: Case) -> BoundLaunch:
        """See `WarmedKernel`; `function` is called with the case as it is."""
        kind = type(self)
        try:
            values = kind.collect(**case)
        except TypeError as error:
            raise BindingError(self._misfit(case, error)) from error
        names = self.binding.names
        spec, values = evaluate(kind.function, dict(zip(names, values, strict=True)), case)
        bound = self.binding.bind(self, spec, values)
        if not is_triton_kernel(bound.kernel):
            raise _not_triton(self.kernel_name, bound.kernel)
        self.binding.prepare(self, bound.kernel, spec[1])
        arguments = {name: without_storage(value) for name, value in bound.arguments.items()}
        return BoundLaunch(bound.kernel, arguments, bound.options, bound.grid)

    def _misfit(self, case: Case, error: Exception) -> str:
        names = self.binding.names
        strange = [name for name in case if name not in names]
        hint = nearest(strange[0], names) if strange else ""
        return (
            f"{self.kernel_name}: a case of warmup_inputs does not fit the dispatch function: "
            f"{error}{hint} (case: {', '.join(case)}; parameters: {', '.join(names)})"
        )


class NativeKernel(WarmedKernel):
    """A native kernel: `obj[grid](...)` is its own launch, `obj(grid, ...)` the same in one call.

    A case holds the kernel's arguments and options, and `grid` if it matters (to a tuning).
    """

    def __call__(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        """Launch: the grid first, or by name, then the kernel's own arguments."""
        return self.kernel[grid](*args, **kwargs)

    def bound_launch(self, case: Case) -> BoundLaunch:
        """See `WarmedKernel`."""
        names = self.kernel.arg_names
        given = {name: value for name, value in case.items() if name in names or name != "grid"}
        return BoundLaunch(
            self.kernel,
            {name: without_storage(given[name]) for name in names if name in given},
            {name: value for name, value in given.items() if name not in names},
            (1,) if "grid" in names else case.get("grid", (1,)),
        )


def triton_kernel_dispatcher_with_warmup(
    *, warmup_inputs: Callable[..., Any], kernel: Any = None
) -> Callable[[Any], Any]:
    """Decorate a dispatch function of `kernel`, or without `kernel` a native kernel.

    A dispatch function has named parameters only and returns (grid, launch kwargs[, outputs]), as
    under `kernel_launcher`; a call binds by the same rules. `warmup_inputs` is a function of the
    arguments of `register_warmup` (and of `config` or `vllm_config`, if it has such a parameter)
    that returns one mapping of names to values, an iterable of them, `NoKeys('reason')`, or is
    written in the "cases" style. Raises `WrongKindError` (a TypeError) for `*args` and `**kwargs`
    and for what is no Triton kernel.
    """

    def decorate(target: Any) -> Any:
        if kernel is None:
            if not is_triton_kernel(target):
                raise _not_triton(getattr(target, "__name__", repr(target)), target)
            return NativeKernel(target, target, warmup_inputs)
        return _dispatched(target, kernel, warmup_inputs)

    return decorate


def _dispatched(function: Any, kernel: Any, provider: Callable[..., Any]) -> DispatchedKernel:
    if not inspect.isfunction(function):
        raise WrongKindError(
            f"triton_kernel_dispatcher_with_warmup(kernel=...) decorates a dispatch function, got "
            f"a {type(function).__name__}"
        )
    parameters = list(inspect.signature(function).parameters.values())
    for p in parameters:
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise WrongKindError(
                f"{function.__qualname__}: parameter {p}: a dispatch function binds by name, so it "
                "takes no *args, no **kwargs and no positional-only parameters"
            )
    names = tuple(p.name for p in parameters)
    binding = InputBinding(names)
    values = f"({', '.join(names)},)" if names else "()"
    # After a keyword-only marker or not, the object itself comes first.
    signature = signature_code(parameters)
    code = f"""
def collect({signature}):
    return {values}
def call(_jw_self{", " if names else ""}{signature}):
    return _jw_run(_jw_self, _jw_function({forward_code(parameters)}), {values})
"""
    namespace: dict[str, Any] = {
        "__name__": __name__,
        "_jw_function": function,
        "_jw_run": binding.run,
    }
    exec(compile(code, f"<dispatcher of {function.__qualname__}>", "exec"), namespace)  # noqa: S102
    collect, call = namespace["collect"], namespace["call"]
    for generated in (collect, call):
        carry_name(generated, function.__name__, function.__qualname__)
        generated.__kwdefaults__ = function.__kwdefaults__
        generated.__defaults__ = function.__defaults__
    members = {
        "__call__": call,
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
        "binding": binding,
        "collect": staticmethod(collect),
        "function": staticmethod(function),
    }
    made: Any = type(function.__name__, (DispatchedKernel,), members)
    return made(function, kernel, provider)  # type: ignore[no-any-return]


def _not_triton(label: str, kernel: Any) -> WrongKindError:
    return WrongKindError(
        f"{label}: {kernel!r} is no Triton kernel: triton_kernel_dispatcher_with_warmup needs a "
        "@triton.jit function, or one inside triton.autotune or triton.heuristics"
    )
