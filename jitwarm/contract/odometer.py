"""The odometer of the "cases" style: it runs a function once a point, and takes the place of each
domain with the value that it has there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from jitwarm.contract.expander import add_points
from jitwarm.declare.domains import RowGroup, WarmupChoices, WarmupIntRange, axis_values, chooser
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import DeclarationError, EmptySpaceError, WrongKindError

Case = Mapping[str, Any]
_DOMAINS = (WarmupIntRange, WarmupChoices, RowGroup)
_DROPPED = object()
_MADE_ELSEWHERE = (
    "a domain stands for its values only if it is made while the function runs, so write it there"
)


class _Drop(BaseException):
    """A signal to the odometer: no `except Exception` on its way takes it."""


class _Domain:
    """A domain of the current prefix: which of its values is taken, and how it was written."""

    __slots__ = ("count", "index", "kind", "shape", "values")

    def __init__(self, domain: Any, values: Any) -> None:
        self.kind, self.shape = type(domain), _shape(domain)
        self.values, self.count, self.index = values, len(values), 0

    def value(self, domain: Any) -> Any:
        """The value of the domain as it is written in this run; raises LookupError if it is another
        one.
        """
        if type(domain) is not self.kind or _shape(domain) != self.shape:
            raise LookupError
        # Alternatives may be new objects in each run; the steps of `advance` are walked once.
        values = domain.values if self.kind is WarmupChoices else self.values
        return values[self.index]


class Odometer:
    """Runs a function once a point and says which value each of its domains has.

    `used` tells whether the function has made a domain or called `_when`.
    """

    def __init__(
        self,
        kernel: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        """`kernel` names the kernel in errors."""
        self.kernel, self.function, self.args, self.kwargs = kernel, function, args, kwargs
        self.label = f"{kernel}: {getattr(function, '__qualname__', repr(function))}"
        self.used = self.dropped = False
        self.prefix: list[_Domain] = []
        self.depth = 0

    def choose(self, domain: Any) -> Any:
        """The value of a domain that the function makes now."""
        self.used = True
        depth = self.depth
        self.depth += 1
        if depth == len(self.prefix):
            self.prefix.append(_Domain(domain, self._values(domain)))
        try:
            return self.prefix[depth].value(domain)
        except LookupError:
            raise self._not_repeatable() from None

    def when(self, condition: object) -> None:
        """Leave the current run unless `condition` is true."""
        self.used = True
        if not condition:
            self.dropped = True
            raise _Drop

    def run(self) -> Any:
        """What the function returns at the current point, or `_DROPPED`."""
        self.depth, self.dropped = 0, False
        token = chooser.set(self)
        try:
            result = self.function(*self.args, **self.kwargs)
        except _Drop:
            result = _DROPPED
        finally:
            chooser.reset(token)
        if self.depth < len(self.prefix):
            raise self._not_repeatable()
        return _DROPPED if self.dropped else result

    def points(self, result: Any) -> Iterator[Case]:
        """The results of this run and of all that follow."""
        runs = found = 0
        while True:
            runs += 1
            if result is not _DROPPED:
                found += 1
                add_points(1)
                yield self.checked(result)
            if not self._advance():
                break
            result = self.run()
        if not found:
            raise EmptySpaceError(
                f"{self.label}: _when dropped every point ({runs} tried), so nothing would be "
                "warmed; correct the condition, or return NoKeys('reason') if this kernel needs no "
                "key here"
            )

    def _advance(self) -> bool:
        """Go on to the next point; False behind the last."""
        while self.prefix:
            last = self.prefix[-1]
            last.index += 1
            if last.index < last.count:
                return True
            self.prefix.pop()
        return False

    def _values(self, domain: Any) -> Any:
        where = f"{type(domain).__name__} in line {_line()}"
        try:
            return axis_values(self.kernel, where, domain)
        except EmptySpaceError as error:
            earlier = [repr(entry.values[entry.index]) for entry in self.prefix]
            if not earlier:
                raise
            raise EmptySpaceError(
                f"{self.kernel}: axis {where!r} has no values ({domain!r}) where the domains "
                f"before it are {', '.join(earlier)}; put a _when(...) before it that drops such "
                "points"
            ) from error

    def checked(self, result: Any, advice: str = _MADE_ELSEWHERE) -> Case:
        """`result` if it is a case. Raises `WrongKindError`."""
        if not isinstance(result, Mapping):
            raise WrongKindError(
                f"{self.label} returned a {type(result).__name__} for a case; return one mapping "
                "of names to values, as dict(x=..., n=...)"
            )
        for name, value in result.items():
            domain = _domain_in(value)
            if domain is not None:
                raise WrongKindError(
                    f"{self.label} returned a case that holds a {type(domain).__name__} in "
                    f"{name!r}: {advice}"
                )
        return result

    def _not_repeatable(self) -> DeclarationError:
        return DeclarationError(
            f"{self.label} made other domains when it was run again: it runs once for each point, "
            "so what it does may depend on its arguments and on the values of its domains alone"
        )


def _shape(domain: Any) -> Any:
    """What must be the same of a domain whenever the function runs with the same values."""
    if type(domain) is WarmupChoices:
        return len(domain.values)
    # A lambda is another object in each run, so of `advance` only its presence counts.
    return domain.start, domain.stop, domain.step, domain.advance is None


def _domain_in(value: Any) -> Any:
    """A domain in a value of a case, in its tuples, lists and tensors, or None."""
    if isinstance(value, _DOMAINS):
        return value
    if isinstance(value, TensorSpec):
        value = (value.dtype, value.aligned, *value.shape, *(value.strides or ()))
    if isinstance(value, tuple | list):
        return next((found for item in value if (found := _domain_in(item)) is not None), None)
    return None


def _line() -> int:
    """The line of the user's code that makes a domain."""
    ours = (__name__, WarmupChoices.__module__)
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") in ours:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0
