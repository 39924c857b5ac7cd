"""What asking one registered kernel for its keys gives: the input of the plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

ALL_FAILED = "none of its keys could be declared"


@dataclass(frozen=True, slots=True)
class Declared:
    """One declared key: its canonical text (the kernel's name first) and the recipe that makes it
    ready.
    """

    text: str
    recipe: object


@dataclass(frozen=True, slots=True)
class Enumeration:
    """The keys of one registration of one kernel.

    `points` counts the search-space points that were evaluated; `declared` holds the distinct keys
    in first-seen order; `no_keys_reason` says why there is none, and is None where there are some.
    `silent` is True if the author gave no reason: then the reason is our words for that.
    `failures` are the keys that could not be declared, beside those that could.
    """

    name: str
    points: int
    declared: tuple[Declared, ...]
    no_keys_reason: str | None = None
    silent: bool = field(default=False, compare=False)
    failures: tuple[Exception, ...] = ()


def raise_if_single(failures: list[Exception], declared: object) -> None:
    """Raise the failure of a registration that has one, and nothing else."""
    if len(failures) == 1 and not declared:
        raise failures[0]


def taken(given: Iterable[Any]) -> tuple[list[Any], list[Exception]]:
    """What an iterable gives until it ends, or raises: what came before an error stays."""
    found: list[Any] = []
    try:
        for item in given:
            found.append(item)  # noqa: PERF402 - extend() need not keep what came before an error
    except Exception as error:
        return found, [error]
    return found, []
