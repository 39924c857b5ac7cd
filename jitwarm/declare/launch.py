"""One launch that must be ready, written as the launch itself is written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from jitwarm.declare.domains import WarmupChoices, WarmupIntRange, axis_values
from jitwarm.errors import BindingError


@dataclass(frozen=True, slots=True)
class LaunchCase:
    """The keyword arguments of a launch: kernel arguments and options, in the order in which the
    launch writes them.
    """

    arguments: tuple[tuple[str, object], ...]

    def points(self, kernel: str) -> Iterator[dict[str, object]]:
        """Every combination of the domain values in this case; the last one varies fastest.

        Only `WarmupChoices` and `WarmupIntRange` expand: a tuple in a launch is a tuple argument.
        `kernel` names the kernel in errors (an empty domain raises `EmptySpaceError`).
        """
        names = [name for name, _ in self.arguments]
        axes = [
            axis_values(kernel, name, value)
            if isinstance(value, WarmupChoices | WarmupIntRange)
            else (value,)
            for name, value in self.arguments
        ]
        for values in itertools.product(*axes):
            yield dict(zip(names, values, strict=True))


def launch(*unnamed: object, **arguments: object) -> LaunchCase:
    """A launch case: name every kernel argument, and every option that the real launch passes, in
    its order.

    Tensors are `TensorSpec`s. A domain (`WarmupChoices(1, 2, 16)`) stands for each of its values.
    Raises `BindingError` for a value without a name.
    """
    if unnamed:
        kinds = ", ".join(type(value).__qualname__ for value in unnamed)
        raise BindingError(
            f"launch(...) got values without a name ({kinds}): name every argument as the kernel "
            'does, as in launch(x_ptr=TensorSpec("float32"), n=17)'
        )
    return LaunchCase(tuple(arguments.items()))
