"""The "cases" style: a function that is written as one case and stands for all of them.

    def cases(self, config):
        n = WarmupIntRange(1, 9)
        stride = WarmupChoices(1, 2, 16)
        _when(n * stride <= 64)
        return dict(x=TritonWarmupTensor("float32", strides=(stride,)), n=n)

There is one evaluator, Python itself: the function runs once for each point. A domain that it makes
(anywhere, as many as it likes) is one of the domain's values; `_when(False)` ends the run of a
point that does not count. Domains are known by the order in which they are made, the last varies
fastest, and a domain may depend on the values of earlier ones. So the function must do the same
whenever its domains have the same values; what is costly belongs outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jitwarm.contract.expander import add_points
from jitwarm.contract.odometer import Case, Odometer
from jitwarm.declare.domains import chooser
from jitwarm.declare.enumeration import taken
from jitwarm.declare.nokeys import NoKeys
from jitwarm.errors import OutsideCasesError, WrongKindError


def _when(condition: object, /) -> None:
    """Drop the current point of a function in the "cases" style unless `condition` is true.

    Raises `OutsideCasesError` (a RuntimeError) where no cases are being expanded.
    """
    odometer = chooser.get()
    if not isinstance(odometer, Odometer):
        raise OutsideCasesError(
            "_when(...) was called outside a function whose cases are being expanded: expand it "
            "with _expand_warmup_cases(function, ...), or pass a predicate to the expander as "
            "_when=..."
        )
    odometer.when(condition)


def expand_cases(
    kernel: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[Case]:
    """The mappings that `function(*args, **kwargs)` stands for, one a point, none left out.

    `kernel` names the kernel in errors. Raises `EmptySpaceError` for an empty domain and where
    `_when` drops every point, `WrongKindError` (a TypeError) for a result that is no mapping or
    holds a domain, `DeclarationError` for a function that makes other domains when it is run again;
    what the function raises passes through.
    """
    odometer = Odometer(kernel, function, args, kwargs)
    return odometer.points(odometer.run())


@dataclass(frozen=True, slots=True)
class GivenCases:
    """What a provider gave: its cases, what was wrong with others, its reason if there is none."""

    cases: list[Case]
    failures: list[Exception]
    spoken: NoKeys | None = None


def given_cases(
    kernel: str, provider: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> GivenCases:
    """What `provider(*args, **kwargs)` gives: the cases of a function in the "cases" style, one
    mapping, or an iterable of mappings; or its reason for none.

    A provider is in the "cases" style if it makes a domain or calls `_when`. Each case counts as a
    point. What is wrong with a case is a failure, and costs no other; what the first run of the
    provider raises passes through.
    """
    odometer = Odometer(kernel, provider, args, kwargs)
    first = odometer.run()
    if odometer.used:
        return GivenCases(*taken(odometer.points(first)))
    if isinstance(first, NoKeys):
        return GivenCases([], [], first)
    if isinstance(first, Mapping):
        first = (first,)
    if not isinstance(first, Iterable) or isinstance(first, str | bytes | set | frozenset):
        raise WrongKindError(
            f"{odometer.label} returned a {type(first).__name__}; return a mapping of names to "
            "values, a list of them, or NoKeys('reason')"
        )
    cases: list[Case] = []
    found, failures = taken(first)
    for case in found:
        try:
            cases.append(odometer.checked(case, "a list of cases has every value written out"))
        except WrongKindError as error:
            failures.append(error)
    add_points(len(cases))
    return GivenCases(cases, failures)
