"""Autotuned kernels: their choice made at start-up, and told of when it is made later.

An autotuner times its configurations at the first launch with new values of its key arguments. All
of them are compiled before (they are keys of the plan); the timing itself needs launches on real
tensors, the one part of warm-up that does. Tuning is an event `tune`, here and while serving:
`Autotuner.run` and `_bench` are wrapped while anybody watches.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jitwarm import device
from jitwarm.backends import sinks
from jitwarm.backends.hookpoints import require
from jitwarm.backends.miss import Miss
from jitwarm.backends.triton.naming import import_path
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.backends.triton.unwrap import (
    by_position,
    innermost,
    is_jit_function,
    is_tuned,
    tuning_text,
)
from jitwarm.declare.tensor import TensorSpec
from jitwarm.declare.torch_tensor import real_tensor, with_torch_dtype
from jitwarm.errors import DeclarationError, RunError

_PASSED_OVER = "this configuration cannot be used here, and the autotuner passes over it: "


@dataclass(frozen=True, slots=True)
class TunedRecipe(TritonRecipe):
    """One configuration of an autotuned launch.

    It may be unusable on this device: see `compile_configuration`.
    """


@dataclass(slots=True)
class Configuration:
    """The artefact of a `TunedRecipe`: a CompiledKernel, or None.

    `problem` is why it cannot be used, as far as that is known, and empty otherwise: warm-up
    leaves such a key out.
    """

    kernel: Any
    problem: str = ""

    def load(self) -> str:
        """Load it; returns its problem, if it has one. Raises any other error."""
        if self.kernel is not None:
            try:
                self.kernel._init_handles()
            except Exception as error:
                self.problem = unusable(error)
        return self.problem


def compile_configuration(compile_recipe: Callable[[Any], Any], recipe: Any) -> Configuration:
    """Compile one configuration; one that does not fit the device is no failure, for the autotuner
    passes over it. Raises any other error of `compile_recipe`.
    """
    try:
        return Configuration(compile_recipe(recipe))
    except Exception as error:
        return Configuration(None, unusable(error))


def none_usable(kernel: Any, problem: str) -> RunError:
    """The error of a launch of `kernel` none of whose configurations can be used; `problem` is that
    of one of them.
    """
    return RunError(
        f"{import_path(innermost(kernel))}: no configuration of its autotuner can be used for this "
        "launch: add one that compiles and fits this device, or leave the launch out; of the "
        f"first: {problem.removeprefix(_PASSED_OVER)}"
    )


def unusable(error: Exception) -> str:
    """Why a configuration cannot be used, in words, if `error` is one of those that Triton's
    autotuner itself passes over; raises it otherwise.
    """
    if _is_passed_over(error):
        return f"{_PASSED_OVER}{error}"
    raise error


def _is_passed_over(error: Exception) -> bool:
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    return isinstance(error, OutOfResources | CompileTimeAssertionFailure | PTXASError)


def choose_configuration(
    kernel: Any, arguments: Mapping[str, Any], options: Mapping[str, Any], grid: Any
) -> None:
    """Make the autotuner in `kernel` choose for the launch with these arguments, so that the launch
    itself need not.

    On a GPU this launches the kernel, on tensors that are made from the stand-ins with their shapes
    and `init`: the shapes have to hold what the grid writes. On a stub device nothing is launched
    and nothing timed: the first configuration is taken that compiles and fits the device. Does
    nothing for a kernel without a choice. Raises what a launch raises, `RunError` if the stub finds
    no usable configuration, and `DeclarationError` if the kernel wrote behind a tensor, as far as
    that can be seen.
    """
    if not is_tuned(kernel):
        return
    here = device.current()
    if here.kind != "cuda":
        given = {name: with_torch_dtype(value) for name, value in arguments.items()}
        args, kwargs = by_position(kernel, given)
        try:
            _untimed(kernel).run(*args, grid=grid, warmup=False, **kwargs, **options)
        except Exception as error:
            raise none_usable(kernel, unusable(error)) from error
        return
    made = {name: real_tensor(v) for name, v in arguments.items() if isinstance(v, TensorSpec)}
    args, kwargs = by_position(
        kernel, {**arguments, **{name: real.tensor for name, real in made.items()}}
    )
    kernel.run(*args, grid=grid, warmup=False, **kwargs, **options)
    here.synchronize()
    overrun = [name for name, real in made.items() if real.was_overrun()]
    if overrun:
        raise DeclarationError(
            f"{import_path(innermost(kernel))}: its tuning wrote behind {', '.join(overrun)}: the "
            "stand-in is smaller than what the launch writes, give it the shape of the real tensor"
        )


def _untimed(kernel: Any) -> Any:
    """A shadow of `kernel` whose autotuners take the first usable configuration, for the real ones
    too, and which compiles where a launch would launch.
    """
    if is_jit_function(kernel):
        return _Compiles(kernel)
    shadow = copy.copy(kernel)
    shadow.fn = _untimed(kernel.fn)
    if hasattr(kernel, "configs"):
        shadow.run = functools.partial(_choose_untimed, kernel, shadow)
    return shadow


def _choose_untimed(tuner: Any, shadow: Any, *args: Any, **kwargs: Any) -> None:
    """Let `shadow` choose, and `tuner` remember the choice.

    Raises what its compile raised where no configuration is usable; then nothing is remembered.
    """
    problems: dict[Any, Exception] = {}

    def bench(*args: Any, config: Any, **meta: Any) -> list[float]:
        """In place of a timing: all usable configurations are equally fast."""
        try:
            shadow.fn.run(*args, **meta, **config.all_kwargs())
        except Exception as error:
            unusable(error)
            problems[config] = error
        return [float("inf") if config in problems else 1.0] * 3

    # Times that were not measured must not get into the disk cache of a later run on a GPU.
    shadow.cache_results = False
    shadow.cache = dict(tuner.cache)
    shadow._bench = bench
    shadow.pre_hook = lambda *_args, **_kwargs: None
    shadow.__dict__.pop("best_config", None)
    raised = None
    try:
        type(shadow).run(shadow, *args, **kwargs)
    except Exception as error:
        # A configuration's own hook may want a tensor; the choice was made before it is called.
        if "best_config" not in shadow.__dict__ or _is_passed_over(error):
            raise
        raised = error
    problem = problems.get(shadow.best_config)
    if problem is not None:
        raise problem from raised
    tuner.cache.update(shadow.cache)


class _Compiles:
    """Takes the place of the JITFunction: its launches compile, and launch nothing."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        """Compile (from memory, if warm-up did) and check the limits of the device, as a load does.

        The check is made on a copy, past our hooks: warm-up may be asked to leave the load out.
        """
        compiled = self.function.run(*args, grid=(1,), warmup=True, **kwargs)
        if compiled is not None and compiled.module is None:
            inspect.unwrap(type(compiled)._init_handles)(copy.copy(compiled))


_local = threading.local()
_installed: _Installation | None = None


def install() -> None:
    """Wrap Triton's autotuner, where it is not wrapped by us. Called by Triton's `hooks`."""
    global _installed
    if _installed is None:
        _installed = _Installation()


def check() -> None:
    """Raise `HookPointMissing` if this Triton's autotuner lacks a hook point."""
    from triton.runtime.autotuner import Autotuner

    require("triton", "triton", Autotuner, ("_bench", "run"))


def under_way() -> bool:
    """Whether this thread's launch times configurations right now."""
    return bool(getattr(_local, "benches", 0))


def remove() -> None:
    """Take the wrappers out, except where somebody wrapped ours: there ours pass through."""
    global _installed
    if _installed is not None:
        _installed.remove()
        _installed = None


# Choices made for a sink that launches nothing: who asked, the autotuner, the key in its cache.
_served: list[tuple[sinks.Sink, Any, Any]] = []


def forget(sink: sinks.Sink) -> None:
    """Take the choices out of the autotuners that were made on the kernels of `sink`."""
    for entry in [entry for entry in _served if entry[0] is sink]:
        _served.remove(entry)
        entry[1].cache.pop(entry[2], None)


def _ask(tuner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], served: list[Any]) -> None:
    """Tell the sinks of a tuning before it begins; raises what one raises to refuse it.

    Adds to `served` who gives kernels that do nothing, and what was chosen before.
    """
    path = import_path(innermost(tuner))
    answer = sinks.ask(Miss(path, tuning_text(tuner, args, kwargs), kind="tune"))
    if answer is not None:
        served.append((answer[0], set(tuner.cache)))


class _Installation:
    """Our wrappers, each over what it found in its place."""

    def __init__(self) -> None:
        from triton.runtime.autotuner import Autotuner

        self._owner: Any = Autotuner
        self._replaced: list[tuple[str, Any, Any]] = []
        self._wrap("_bench", self._over_bench)
        self._wrap("run", self._over_run)

    def remove(self) -> None:
        """Put everything back that nobody else has replaced since."""
        for name, original, ours in self._replaced:
            if getattr(self._owner, name, None) is ours:
                setattr(self._owner, name, original)

    def _wrap(self, name: str, over: Any) -> None:
        original = getattr(self._owner, name)
        ours = functools.wraps(original)(over(original))
        self._replaced.append((name, original, ours))
        setattr(self._owner, name, ours)

    def _over_bench(self, original: Any) -> Any:
        def bench(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            """Time one configuration, and add the time to the tuning of this launch.

            Before the first, whoever watches may refuse: not one has been compiled or launched yet.
            """
            ask = getattr(_local, "ask", None)
            if ask is not None:
                _local.ask = None
                ask()
            start = time.perf_counter()
            _local.benches = getattr(_local, "benches", 0) + 1
            try:
                times = original(tuner, *args, **kwargs)
            finally:
                _local.benches -= 1
            _local.ms = getattr(_local, "ms", 0.0) + (time.perf_counter() - start) * 1e3
            _local.configs = getattr(_local, "configs", 0) + 1
            return times

        return bench

    def _over_run(self, original: Any) -> Any:
        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            """A launch; if it timed configurations, tell of it, whatever the end."""
            if _installed is not self:
                return original(tuner, *args, **kwargs)
            outer = [getattr(_local, name, None) for name in ("ms", "configs", "ask")]
            _local.ms, _local.configs = 0.0, 0
            served: list[tuple[sinks.Sink, set[Any]]] = []
            _local.ask = functools.partial(_ask, tuner, args, kwargs, served)
            try:
                return original(tuner, *args, **kwargs)
            finally:
                ms, configs = _local.ms, _local.configs
                _local.ms, _local.configs, _local.ask = outer[0] or 0.0, outer[1] or 0, outer[2]
                if configs:
                    text = tuning_text(tuner, args, kwargs)
                    sinks.tuned(import_path(innermost(tuner)), text, ms, configs)
                for sink, before in served:
                    _served.extend((sink, tuner, key) for key in tuner.cache if key not in before)

        return run
