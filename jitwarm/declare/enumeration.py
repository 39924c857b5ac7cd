"""What asking one registered kernel for its keys gives: the input of the plan."""

from __future__ import annotations

from dataclasses import dataclass, field


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


def raise_if_all_failed(failures: list[Exception], declared: object) -> None:
    """Raise the first failure if nothing was declared; the others are noted on it."""
    if failures and not declared:
        for other in failures[1:]:
            failures[0].add_note(f"and: {type(other).__name__}: {other}")
        raise failures[0]
