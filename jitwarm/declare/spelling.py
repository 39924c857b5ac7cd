"""Names in a launch that do not fit the kernel, in words: what is missing, what is unknown, and
what was probably meant.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from jitwarm import keys
from jitwarm.errors import KeyValueError

# Characters of one value, and of all arguments together, that an error message shows.
_VALUE_LENGTH, _LAUNCH_LENGTH = 48, 200

# Triton's `run` hands these to the kernel itself where a launch leaves them out.
_SUPPLIED_BY_TRITON = frozenset({"debug", "instrumentation_mode", "fpsan_homomorphic_casts"})


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known name that is most like `name`, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def launch_text(arguments: Mapping[str, object]) -> str:
    """`launch(...)` with these arguments for an error message; long values and long launches are
    cut.
    """
    inner = ", ".join(f"{name}={_shown(value)}" for name, value in arguments.items())
    return f"launch({_cut(inner, _LAUNCH_LENGTH)})"


def required_arguments(fn: Any) -> tuple[str, ...]:
    """The arguments of a JITFunction that a launch must name: those without a default."""
    return tuple(
        parameter.name
        for parameter in inspect.signature(fn.fn).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_POSITIONAL
        and parameter.name not in _SUPPLIED_BY_TRITON
    )


def name_problem(fn: Any, given: Collection[str], options: Collection[str] | None) -> str:
    """What is wrong with the names `given` to a launch of the JITFunction `fn`, or nothing.

    `options` are the names of Triton's launch options on this device, None where there is no device
    to ask: then only names that resemble a missing argument are doubted.
    """
    kernel, arguments = fn.fn.__name__, fn.arg_names
    missing = [name for name in required_arguments(fn) if name not in given]
    problems = []
    if missing:
        plural = len(missing) > 1
        problems.append(
            f"the required argument{'s' if plural else ''} {', '.join(map(repr, missing))} "
            f"{'are' if plural else 'is'} missing"
        )
    strange = [name for name in given if name not in arguments and name not in (options or ())]
    if options is None:
        strange = [name for name in strange if nearest(name, missing)]
        problems += [
            f"{name} is not an argument of {kernel}{nearest(name, missing)}" for name in strange
        ]
    else:
        # What the launch has under its right name was not meant by another one.
        free = [name for name in (*arguments, *options) if name not in given]
        problems += [
            f"{name} is neither an argument of {kernel} nor an option of Triton"
            f"{nearest(name, free) or '; correct it or leave it out'}"
            for name in strange
        ]
    if missing and not strange:
        problems.append(f"name every argument of {kernel} that has no default")
    return "; ".join(problems)


def _shown(value: object) -> str:
    try:
        return _cut(keys.canonical(value), _VALUE_LENGTH)
    except KeyValueError:
        return f"<{type(value).__qualname__}>"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
