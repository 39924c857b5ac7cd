"""Ask Triton for the key of a launch: its own `run`, its own binder, nothing compiled and nothing
launched.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from jitwarm.backends.miss import Spelling
from jitwarm.backends.triton.keytext import key_text
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.declare.spelling import launch_text, name_problem
from jitwarm.declare.tensor import TensorSpec, dtype_name
from jitwarm.errors import BindingError


def spelling_of(options: Mapping[str, Any]) -> Spelling:
    """The spelling of the options that Triton's binder leaves over."""
    return tuple((name, repr(value)) for name, value in options.items())


@dataclass(frozen=True, slots=True)
class BoundKey:
    """The key of one launch: `text` canonical and the same everywhere, `in_process` Triton's own
    string in this process, `spelling` the launch's options as written.
    """

    text: str
    in_process: str
    spelling: Spelling


class _Answered(Exception):  # noqa: N818 - not an error: it carries the answer out of Triton's run
    def __init__(self, in_process: str, options: Any) -> None:
        self.in_process, self.options = in_process, options


def bind(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    memo: MutableMapping[Any, str] | None = None,
) -> BoundKey:
    """The key that `fn[grid](*args, **kwargs)` would have on the current device.

    A shallow copy of the JITFunction runs Triton's `run` with empty caches up to the point where it
    would compile. So Triton completes the options itself, whatever its version, and neither the
    real caches nor concurrent launches are touched (about 150 us a key on the machine of
    docs/measurements.md). `memo` stands for Triton's memo of in-process strings, which is empty
    without it, and takes the launch over. Raises `BindingError` where Triton refuses the arguments
    or an option.
    """
    device = _device_index()
    shadow = copy.copy(fn)
    shadow.pre_run_hooks = []
    # Not the function's own memo: it compares 1, True and 1.0 as equal and would answer with
    # whichever came first.
    caches = fn.device_caches[device]
    shadow.device_caches = {device: ({}, {} if memo is None else memo, *caches[2:])}
    seen: list[Any] = []
    written: list[Spelling] = []
    pack = type(fn)._pack_args

    def pack_args(
        backend: Any, kwargs: Any, bound_args: Any, specialization: Any, options: Any
    ) -> Any:
        seen[:] = specialization
        written.append(spelling_of(options))
        return pack(shadow, backend, kwargs, bound_args, specialization, options)

    def do_compile(key: str, *compile_arguments: Any) -> None:
        # They are signature, device, constexprs, options, attrs, warmup.
        raise _Answered(key, compile_arguments[3])

    shadow._pack_args = pack_args
    shadow._do_compile = do_compile
    try:
        shadow.run(*args, grid=(1,), warmup=True, **kwargs)
    except _Answered as answer:
        _, _, target, backend, _ = caches
        text = key_text(fn, seen, answer.options, backend, target)
        return BoundKey(text, answer.in_process, written[0])
    except Exception as error:  # whatever Triton raises, its message lacks the kernel's name
        name = getattr(fn.fn, "__qualname__", str(fn))
        given = dict(zip(fn.arg_names, args, strict=False)) | dict(kwargs)
        raise BindingError(
            f"{name}: Triton cannot bind {launch_text(given)}: {_problem(fn, given, error)}"
        ) from error
    raise BindingError(
        f"{fn}: Triton ran without asking for a key"
    )  # pragma: no cover - no version does this


def bind_recipe(
    fn: Any, recipe: TritonRecipe, memo: MutableMapping[Any, str] | None = None
) -> BoundKey:
    """The key of a recipe's launch; see `bind`."""
    return bind(fn, (), dict(recipe.arguments) | dict(recipe.options), memo)


def binding_token(fn: Any, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
    """A text that is equal for two launches of `fn` only if their keys are, from the binder alone:
    a tenth of the cost of `bind`, to leave out all but the first of many launches.

    It is Triton's in-process string without what depends on the environment. None where the binder
    refuses the launch: `bind` says why.
    """
    from triton.runtime.jit import compute_cache_key

    try:
        binder = fn.device_caches[_device_index()][4]
        _, specialization, left_over = binder(**arguments, **options)
        return str(compute_cache_key({}, specialization, left_over))
    except Exception:
        return None


def option_names(fn: Any) -> frozenset[str] | None:
    """The launch options that Triton takes on the current device, from the backend's own options.

    None where there is no device to ask.
    """
    try:
        _, _, _, backend, _ = fn.device_caches[_device_index()]
        return frozenset(vars(backend.parse_options({})))
    except Exception:  # it is asked for the sake of an error's text, which must not fail itself
        return None


def _problem(fn: Any, given: Mapping[str, Any], error: Exception) -> str:
    """Why Triton refused a launch, and what to do, in words that name the argument."""
    problem = name_problem(fn, given, option_names(fn))
    if problem:
        return problem
    for name, value in given.items():
        # Triton looks the name up in its table of types.
        if (
            isinstance(error, KeyError)
            and isinstance(value, TensorSpec)
            and error.args == (dtype_name(value.dtype),)
        ):
            return f"it has no type for the dtype {value.dtype} of argument {name!r}; use another"
    said = str(error) or type(error).__name__
    return f"{said}; check the types of the arguments and the values of the options"


def _device_index() -> int:
    import triton

    return int(triton.runtime.driver.active.get_current_device())
