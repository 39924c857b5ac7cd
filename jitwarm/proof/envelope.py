"""An envelope: every launch that one call site can make, as a function of a few parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jitwarm.errors import DeclarationError, EmptySpaceError
from jitwarm.proof.forms import Form


@dataclass(frozen=True, slots=True)
class Ints:
    """Every whole number from `low` to `high`, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        """Refuse ends that are no whole numbers."""
        for end in (self.low, self.high):
            if not isinstance(end, int) or isinstance(end, bool):
                raise DeclarationError(
                    f"Ints({self.low!r}, {self.high!r}): {end!r} is no whole number; use "
                    "Values(...) for others"
                )

    def __len__(self) -> int:
        """How many, below 2**63; `size` has no limit."""
        return self.size

    @property
    def size(self) -> int:
        """How many."""
        return max(self.high - self.low + 1, 0)


@dataclass(frozen=True, slots=True, init=False)
class Values:
    """A finite set of values, each walked: flags, dtypes, ratios, ranks."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        """The values in order of interest: the first is the smallest in reports."""
        object.__setattr__(self, "values", values)

    def __len__(self) -> int:
        """How many."""
        return len(self.values)

    @property
    def size(self) -> int:
        """How many."""
        return len(self.values)


Domain = Ints | Values


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """All launches of one call site.

    `kernel` is what is launched: an object of a contract class, a declaration, a decorated
    function, a `@triton.jit` function, or a `KeyFunction`. `launch(**point)` gives the arguments of
    the launch at one point of `parameters` (with `TensorSpec`s for tensors): those of `__call__`
    for a Triton class, of `dispatch` for any other class, of the launch itself, options included,
    for a native kernel, which a declaration and a decorated function stand for; or None where
    nothing is launched. `where(**columns)` says which points exist; it gets whole numbers, or one
    numpy array for each parameter of whole numbers, so it is written with operators, as in
    `(d + p <= 256) & (p > 0)`; of `Values` it always gets one. It declares the parameters that it
    looks at, and no others need be. What it says of arrays is compared with what it says of single
    points; where the two differ, it is asked point by point.

    `forms` names every specialised argument of the native kernel that changes inside the envelope
    and says how; it makes an envelope of millions of points provable from a few thousand. Without
    forms each point is walked. What `forms` says is checked against `launch` at random points.
    """

    kernel: Any
    site: str
    parameters: Mapping[str, Domain]
    launch: Callable[..., Mapping[str, Any] | None]
    where: Callable[..., Any] | None = None
    forms: Mapping[str, Form] | None = None
    owners: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """Refuse empty domains, and forms of parameters that are not whole numbers."""
        for what, function in (("launch", self.launch), ("where", self.where)):
            if function is not None and not callable(function):
                raise DeclarationError(f"{self.site}: {what} is {function!r}, which is no function")
        for what, mapping in (("parameters", self.parameters), ("forms", self.forms or {})):
            if not isinstance(mapping, Mapping):
                raise DeclarationError(
                    f"{self.site}: {what} is a {type(mapping).__name__}; give a mapping of names"
                )
        for name, domain in self.parameters.items():
            if not isinstance(domain, Ints | Values):
                raise DeclarationError(
                    f"{self.site}: parameter {name!r} is a {type(domain).__name__}; use Ints(low, "
                    "high) or Values(...)"
                )
            if not domain.size:
                raise EmptySpaceError(
                    f"{self.site}: parameter {name!r} has no values ({domain}), so nothing would "
                    "be proved"
                )
        for argument, form in (self.forms or {}).items():
            if not isinstance(form, Form):
                raise DeclarationError(
                    f"{self.site}: the form of {argument!r} is a {type(form).__name__}; use "
                    "affine(...), next_power_of_two(...) or pointer(...)"
                )
            for name in form.names:
                if not isinstance(self.parameters.get(name), Ints):
                    raise DeclarationError(
                        f"{self.site}: the form of {argument!r} uses {name!r}, which is no "
                        f"parameter of whole numbers; there are {', '.join(self.parameters)}"
                    )
