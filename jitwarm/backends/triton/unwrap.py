"""Through Triton's own wrappers to the kernel: which launches of the JITFunction follow from a
launch of an autotuner or of heuristics around it.

Triton's code decides: heuristics run in shadow copies of the wrappers, an autotuner's copy prunes
its configurations. Nothing is compiled, timed or launched, and the wrappers that launches use are
not touched.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jitwarm import keys
from jitwarm.backends.triton.naming import import_path
from jitwarm.declare.tensor import dtype_name
from jitwarm.errors import BindingError, KeyValueError, WrongKindError

_TUNE = "{tune}"
_CHOICE = " choice for "


@dataclass(frozen=True, slots=True)
class InnerLaunch:
    """A launch of the JITFunction `function`: arguments by name in kernel order, options in launch
    order, and which of both the wrappers supplied. `choices` are the `tuning_text`s of autotuners
    that have to choose before it.
    """

    function: Any
    arguments: dict[str, Any]
    options: dict[str, Any]
    supplied: dict[str, Any]
    choices: tuple[str, ...]

    def suffix(self) -> str:
        """What the wrappers supplied, as in ` {BLOCK=16, num_warps=4}`."""
        return f" {{{', '.join(f'{name}={_text(v)}' for name, v in self.supplied.items())}}}"


def is_jit_function(kernel: Any) -> bool:
    """Whether this is Triton's own JITFunction, told without importing Triton."""
    return _is_a(kernel, "JITFunction")


def is_wrapped(kernel: Any) -> bool:
    """Whether this is an autotuner or heuristics, told without importing Triton."""
    return _is_a(kernel, "Autotuner") or _is_a(kernel, "Heuristics")


def is_tuned(kernel: Any) -> bool:
    """Whether there is an autotuner with a choice to make in this kernel."""
    while is_wrapped(kernel):
        if _is_a(kernel, "Autotuner") and len(kernel.configs) > 1:
            return True
        kernel = kernel.fn
    return False


def inner_launches(
    label: str,
    kernel: Any,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any],
    grid: Any = (1,),
) -> list[InnerLaunch]:
    """The launches of the innermost JITFunction that one launch of `kernel` may become: one for
    each configuration that an autotuner's pruning leaves, otherwise one.

    `label` names the kernel in errors. Raises `BindingError` for a value that both the launch and a
    configuration give, `WrongKindError` (a TypeError) for a wrapper that is not Triton's; what
    pruning and heuristics raise passes through.
    """
    args, kwargs = by_position(kernel, arguments)
    given = set(arguments) | set(options)
    found: list[InnerLaunch] = []

    def collect(
        fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], choices: tuple[str, ...]
    ) -> None:
        named = dict(zip(fn.arg_names, args, strict=False)) | kwargs
        found.append(
            InnerLaunch(
                fn,
                {name: named[name] for name in fn.arg_names if name in named},
                {name: value for name, value in named.items() if name not in fn.arg_names},
                {name: value for name, value in named.items() if name not in given},
                choices,
            )
        )

    _Descent(label, grid, collect).through(kernel, args, {**kwargs, **options}, ())
    return found


def by_position(
    kernel: Any, arguments: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as a launch passes them: by position up to the first that is left out, then by
    name. Pruning functions see the two apart.
    """
    leading: list[str] = []
    for name in kernel.arg_names:
        if name not in arguments:
            break
        leading.append(name)
    rest = {name: value for name, value in arguments.items() if name not in leading}
    return tuple(arguments[name] for name in leading), rest


def innermost(kernel: Any) -> Any:
    """The JITFunction inside autotuners and heuristics."""
    while is_wrapped(kernel):
        kernel = kernel.fn
    return kernel


def tuning_text(tuner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The canonical text of what an autotuner chooses for: the kernel, the values of its key
    arguments, and the dtypes of its tensors.

        package.module._kernel[n:4096; x_ptr:float32]{tune}
    """
    named = dict(zip(tuner.arg_names, args, strict=False)) | dict(kwargs)
    parts = [f"{name}:{_text(named[name])}" for name in tuner.keys if name in named]
    parts += [
        f"{name}:{dtype_name(value.dtype)}"
        for name, value in named.items()
        if name in tuner.arg_names and hasattr(value, "dtype")
    ]
    return f"{import_path(innermost(tuner))}[{'; '.join(parts)}]{_TUNE}"


def is_tuning(text: str) -> bool:
    """Whether this is a `tuning_text`, and no key of a binary."""
    return text.endswith(_TUNE)


def choice_text(choices: Iterable[str]) -> str:
    """What the plan calls the choices that launches with these `tuning_text`s need."""
    return f"{_CHOICE}{' and '.join(choices)}"


def choices_in(declared: str) -> list[str]:
    """The `tuning_text`s in the text of a declared key, if it is one of a choice."""
    _, found, rest = declared.rpartition(_CHOICE)
    texts = rest.rpartition(_TUNE)[0] if found else ""
    return [text + _TUNE for text in texts.split(f"{_TUNE} and ")] if texts else []


class _Below:
    """Stands below a shadow copy of a wrapper and takes the launch that it passes on."""

    def __init__(self, take: Callable[[tuple[Any, ...], dict[str, Any]], None]) -> None:
        self.take = take

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        self.take(args, kwargs)


@dataclass(frozen=True, slots=True)
class _Descent:
    """The way of one launch through the wrappers."""

    label: str
    grid: Any
    collect: Callable[[Any, tuple[Any, ...], dict[str, Any], tuple[str, ...]], None]

    def through(
        self,
        kernel: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        choices: tuple[str, ...],
    ) -> None:
        if is_jit_function(kernel):
            self.collect(kernel, args, kwargs, choices)
        elif _is_a(kernel, "Heuristics"):
            shadow = copy.copy(kernel)
            shadow.fn = _Below(lambda a, k: self.through(kernel.fn, a, k, choices))
            shadow.run(*args, grid=self.grid, warmup=False, **kwargs)
        elif _is_a(kernel, "Autotuner"):
            if len(kernel.configs) > 1:
                choices = (*choices, tuning_text(kernel, args, kwargs))
            known = {"grid": self.grid, "warmup": False, **kwargs}
            for config in _configurations(kernel, args, known):
                self._configured(kernel, config, args, kwargs, choices)
        else:
            raise WrongKindError(
                f"{self.label}: {type(kernel).__module__}.{type(kernel).__qualname__} is no "
                "wrapper of Triton's, so the keys behind it are unknown; use triton.autotune and "
                "triton.heuristics, or a class with a compile of its own"
            )

    def _configured(
        self,
        tuner: Any,
        config: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        choices: tuple[str, ...],
    ) -> None:
        chosen = config.all_kwargs()
        given = dict(zip(tuner.arg_names, args, strict=False)) | kwargs
        twice = [name for name in chosen if name in given]
        if twice:
            raise BindingError(
                f"{self.label}: the launch gives {', '.join(map(repr, twice))}, and so does the "
                f"autotuner's configuration ({config}); leave it to one of them"
            )
        self.through(tuner.fn, args, {**kwargs, **chosen}, choices)


def _configurations(tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The configurations that a launch would time; a single one is taken as it is."""
    if len(tuner.configs) == 1:
        return list(tuner.configs)
    shadow = copy.copy(tuner)
    shadow.nargs = dict(zip(tuner.arg_names, args, strict=False))
    return list(shadow.prune_configs(kwargs))


def _is_a(value: Any, name: str) -> bool:
    return any(
        kind.__name__ == name and kind.__module__.startswith("triton.")
        for kind in type(value).__mro__
    )


def _text(value: Any) -> str:
    try:
        return keys.canonical(value)
    except KeyValueError:
        return keys.placeholder(value)
