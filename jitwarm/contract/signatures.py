"""What a dispatch function or a predicate declares, and which of it is ever read."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

from jitwarm.errors import DeclarationError

# A function that can see its own frame may read any of its parameters without naming it.
_FRAME_READERS = frozenset(
    {"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "f_locals", "stack"}
)

# Every other instruction on local variables counts as a read, so an instruction that a later Python
# adds prunes nothing.
_ONLY_WRITES = frozenset(
    {"STORE_FAST", "DELETE_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_MAYBE_NULL"}
)


@dataclass(frozen=True, slots=True)
class DeclaredInputs:
    """The inputs of one function, in order.

    `required` have no default, `read` are those whose value can matter, `variadic` is a `**kw`.
    """

    names: tuple[str, ...]
    required: frozenset[str]
    read: frozenset[str]
    variadic: bool

    def takes(self, name: str) -> bool:
        """Whether a call may pass `name`."""
        return self.variadic or name in self.names


def declared_inputs(kernel: str, function: Callable[..., Any]) -> DeclaredInputs:
    """The inputs of `function`, a bound method without its self.

    Raises `DeclarationError`, naming `kernel`, if it has no signature or a positional-only
    parameter.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise DeclarationError(
            f"{kernel}: cannot see the parameters of {function!r}: {error}"
        ) from error
    names, required, variadic = [], set(), False
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise DeclarationError(
                f"{kernel}: {_label(function)} has the positional-only parameter "
                f"{parameter.name!r}; inputs go by name"
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            variadic = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            names.append(parameter.name)
            if parameter.default is parameter.empty:
                required.add(parameter.name)
    return DeclaredInputs(tuple(names), frozenset(required), _read(function, names), variadic)


def _read(function: Callable[..., Any], names: list[str]) -> frozenset[str]:
    """The parameters whose value the function can see; all, unless its code proves otherwise."""
    plain = function.__func__ if isinstance(function, MethodType) else function
    # A decorated function (`__wrapped__`) shows the parameters of another one: its own code says
    # nothing about them.
    if (
        not isinstance(plain, FunctionType)
        or hasattr(plain, "__wrapped__")
        or _sees_its_frame(plain.__code__)
    ):
        return frozenset(names)
    loaded = set(plain.__code__.co_cellvars)  # captured by nested code
    for instruction in dis.get_instructions(plain.__code__):
        if "FAST" in instruction.opname and instruction.opname not in _ONLY_WRITES:
            # Newer Pythons fuse two loads into one instruction, whose argument then is a pair of
            # names.
            argument = instruction.argval
            loaded.update(argument if isinstance(argument, tuple) else (argument,))
    return frozenset(name for name in names if name in loaded)


def _sees_its_frame(code: CodeType) -> bool:
    return not _FRAME_READERS.isdisjoint(code.co_names) or any(
        _sees_its_frame(constant) for constant in code.co_consts if isinstance(constant, CodeType)
    )


def _label(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
