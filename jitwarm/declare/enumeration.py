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
    """

    name: str
    points: int
    declared: tuple[Declared, ...]
    no_keys_reason: str | None = None
    silent: bool = field(default=False, compare=False)
