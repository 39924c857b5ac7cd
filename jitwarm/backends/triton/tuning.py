"""Autotuned kernels: their choice made at start-up, and told of when it is made later.

An autotuner times its configurations at the first launch with new values of its key arguments. All
of them are compiled before (they are keys of the plan); the timing itself needs launches on real
tensors, the one part of warm-up that does. Tuning is an event `tune`, here and while serving:
`Autotuner.run` and `_bench` are wrapped while anybody watches.
"""

from __future__ import annotations

import copy
import functools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jitwarm import device
from jitwarm.backends import sinks
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
from jitwarm.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class TunedRecipe(TritonRecipe):
    """One configuration of an autotuned launch.

    It may be unusable on this device: see `compile_configuration`.
    """


@dataclass(frozen=True, slots=True)
class Configuration:
    """The artefact of a `TunedRecipe`: a CompiledKernel, or None and why it cannot be compiled."""

    kernel: Any
    problem: str = ""

    def load(self) -> str:
        """Load it; returns why it cannot be used, or nothing. Raises any other error."""
        if self.kernel is None:
            return self.problem
        try:
            self.kernel._init_handles()
        except Exception as error:
            return unusable(error)
        return ""


def compile_configuration(compile_recipe: Callable[[Any], Any], recipe: Any) -> Configuration:
    """Compile one configuration; one that does not fit the device is no failure, for the autotuner
    passes over it. Raises any other error of `compile_recipe`.
    """
    try:
        return Configuration(compile_recipe(recipe))
    except Exception as error:
        return Configuration(None, unusable(error))


def unusable(error: Exception) -> str:
    """Why a configuration cannot be used, in words, if `error` is one of those that Triton's
    autotuner itself passes over; raises it otherwise.
    """
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    if isinstance(error, OutOfResources | CompileTimeAssertionFailure | PTXASError):
        return f"this configuration cannot be used here, and the autotuner passes over it: {error}"
    raise error


def choose_configuration(
    kernel: Any, arguments: Mapping[str, Any], options: Mapping[str, Any], grid: Any
) -> None:
    """Make the autotuner in `kernel` choose for the launch with these arguments, so that the launch
    itself need not.

    On a GPU this launches the kernel, on tensors that are made from the stand-ins with their shapes
    and `init`: the shapes have to hold what the grid writes. On a stub device nothing is launched
    and nothing timed: the first configuration is taken, as a timing of launches that do nothing
    would. Does nothing for a kernel without a choice. Raises what a launch raises, and
    `DeclarationError` if the kernel wrote behind a tensor, as far as that can be seen.
    """
    if not is_tuned(kernel):
        return
    here = device.current()
    if here.kind != "cuda":
        given = {name: with_torch_dtype(value) for name, value in arguments.items()}
        args, kwargs = by_position(kernel, given)
        _untimed(kernel).run(*args, grid=grid, warmup=False, **kwargs, **options)
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
    """A shadow of `kernel` in which autotuners share their memory with the real ones, take the
    first configuration and pass nothing on to the JITFunction.
    """
    if is_jit_function(kernel):
        return _Nothing()
    shadow = copy.copy(kernel)
    shadow.fn = _untimed(kernel.fn)
    if hasattr(kernel, "configs"):
        shadow.run = functools.partial(_choose_untimed, shadow)
    return shadow


def _choose_untimed(shadow: Any, *args: Any, **kwargs: Any) -> None:
    # Times that were not measured must not get into the disk cache of a later run on a GPU.
    shadow.cache_results = False
    shadow.do_bench = lambda _call, quantiles: [1.0] * len(quantiles)
    shadow.pre_hook = lambda *_args, **_kwargs: None
    shadow.__dict__.pop("best_config", None)
    _local.untimed = True
    try:
        type(shadow).run(shadow, *args, **kwargs)
    except Exception:
        # A configuration's own hook may want a tensor; the choice was made before it is called.
        if "best_config" not in shadow.__dict__:
            raise
    finally:
        _local.untimed = False


class _Nothing:
    """Takes the place of the JITFunction."""

    def run(self, *_args: Any, **_kwargs: Any) -> None:
        """The launch that is not."""


_local = threading.local()
_installed: _Installation | None = None


def install() -> None:
    """Wrap Triton's autotuner, where it is not wrapped by us. Called by Triton's `hooks`."""
    global _installed
    if _installed is None:
        _installed = _Installation()


def remove() -> None:
    """Take the wrappers out, except where somebody wrapped ours: there ours pass through."""
    global _installed
    if _installed is not None:
        _installed.remove()
        _installed = None


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
            if getattr(self._owner, name) is ours:
                setattr(self._owner, name, original)

    def _wrap(self, name: str, over: Any) -> None:
        original = getattr(self._owner, name)
        ours = functools.wraps(original)(over(original))
        self._replaced.append((name, original, ours))
        setattr(self._owner, name, ours)

    def _over_bench(self, original: Any) -> Any:
        def bench(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            """Time one configuration, and add the time to the tuning of this launch."""
            start = time.perf_counter()
            times = original(tuner, *args, **kwargs)
            if not getattr(_local, "untimed", False):
                _local.ms = getattr(_local, "ms", 0.0) + (time.perf_counter() - start) * 1e3
            return times

        return bench

    def _over_run(self, original: Any) -> Any:
        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            """A launch; if it timed configurations, tell of it, whatever the end."""
            if _installed is not self:
                return original(tuner, *args, **kwargs)
            outer, _local.ms = getattr(_local, "ms", 0.0), 0.0
            try:
                return original(tuner, *args, **kwargs)
            finally:
                ms, _local.ms = _local.ms, outer
                if ms:
                    text = tuning_text(tuner, args, kwargs)
                    sinks.tuned(import_path(innermost(tuner)), text, ms)

        return run
