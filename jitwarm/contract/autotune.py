"""What one key of a Triton kernel compiles: one binary, or one for each configuration of an
autotuner, and then the autotuner's choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.backends.triton.unwrap import (
    InnerLaunch,
    choice_text,
    inner_launches,
    is_jit_function,
    is_tuned,
    is_wrapped,
)
from jitwarm.contract.launcher import BoundLaunch
from jitwarm.declare.enumeration import Declared
from jitwarm.declare.torch_tensor import with_torch_dtype


def is_triton_kernel(kernel: Any) -> bool:
    """Whether this is a JITFunction, or one inside autotuners and heuristics."""
    return is_jit_function(kernel) or is_wrapped(kernel)


def launches_of(label: str, bound: BoundLaunch) -> list[InnerLaunch]:
    """The launches of the JITFunction behind a launch, heuristics evaluated: for an autotuner one
    for each configuration that its pruning leaves. Raises as `inner_launches`.
    """
    arguments = bound.arguments
    if is_wrapped(bound.kernel):  # their functions look at what they get
        arguments = {name: with_torch_dtype(value) for name, value in arguments.items()}
    grid = (1,) if bound.grid is None else bound.grid
    return inner_launches(label, bound.kernel, arguments, bound.options, grid)


def triton_recipes(bound: BoundLaunch, launches: Iterable[InnerLaunch]) -> list[TritonRecipe]:
    """A recipe for each of the `launches_of` a launch."""
    from jitwarm.backends.triton.naming import import_path
    from jitwarm.backends.triton.tuning import TunedRecipe

    kind = TunedRecipe if is_tuned(bound.kernel) else TritonRecipe
    return [
        kind(
            import_path(launch.function),
            tuple(launch.arguments.items()),
            tuple(launch.options.items()),
        )
        for launch in launches
    ]


def triton_parts(
    text: str, bound: BoundLaunch, launches: list[InnerLaunch], choice: object
) -> list[Declared]:
    """The recipes of a launch under the key's `text`.

    For an autotuner one for each configuration, named behind the text, and last `choice`, the
    recipe of the choice between them (unless the launch is left out).
    """
    recipes = triton_recipes(bound, launches)
    if not is_tuned(bound.kernel):
        return [Declared(text, recipe) for recipe in recipes]
    parts = [
        Declared(text + launch.suffix(), recipe)
        for launch, recipe in zip(launches, recipes, strict=True)
    ]
    if bound.grid is not None:
        parts.append(Declared(text + choice_text(launches[0].choices) + _how(), choice))
    return parts


def _how() -> str:
    """How the choice between a key's configurations is made.

    A plan may be made without a device, so the device is asked only if there is one.
    """
    from jitwarm import device
    from jitwarm.errors import DeviceError

    try:
        stub = device.current().kind == "stub"
    except DeviceError:
        stub = False
    if stub:
        return " (tuning skipped: a stub device times nothing; the first usable is taken)"
    return " (tuned by launches)"


def make_ready(label: str, bound: BoundLaunch) -> Any:
    """Compile what a launch of a Triton kernel needs, and let an autotuner choose.

    Returns the CompiledKernel, or the list of those of an autotuner's usable configurations. Raises
    what the compiler raises, and for an autotuner what the launch raises, and `RunError` if no
    configuration is usable.
    """
    from jitwarm.backends.triton.compiler import compile_recipe
    from jitwarm.backends.triton.tuning import (
        choose_configuration,
        compile_configuration,
        none_usable,
    )

    recipes = triton_recipes(bound, launches_of(label, bound))
    if not is_tuned(bound.kernel):
        return compile_recipe(recipes[0])
    made = [compile_configuration(compile_recipe, recipe) for recipe in recipes]
    usable = [configuration.kernel for configuration in made if configuration.kernel is not None]
    if not usable:
        raise none_usable(bound.kernel, made[0].problem)
    if bound.grid is not None:
        choose_configuration(bound.kernel, bound.arguments, bound.options, bound.grid)
    return usable
