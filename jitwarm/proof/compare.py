"""The keys of one launch compared: evaluated twice in one process, or in two processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from jitwarm.backends.keyfields import fields_of
from jitwarm.findings import Finding

NUMBER = "the number of launches"


class Difference(NamedTuple):
    """The names of the fields that differ, and their values in the one and the other, each
    separated by `, `.
    """

    field: str
    warmed: str
    seen: str


def difference(one: Sequence[str], other: Sequence[str]) -> Difference:
    """In what the backend keys of two launches differ, each launch with one or several keys: those
    that only one of them has are compared, or all of them where there are none. Where one has all
    of the other's, their numbers differ.
    """
    pairs: dict[str, tuple[str, str]] = {}
    lost, gained = ([key for key in a if key not in b] for a, b in ((one, other), (other, one)))
    both = zip(lost or one, gained or other, strict=False) if bool(lost) == bool(gained) else ()
    for a, b in both:
        mine, theirs = fields_of(a).together(), fields_of(b).together()
        for name in {**mine, **theirs}:
            values = mine.get(name, "absent"), theirs.get(name, "absent")
            if values[0] != values[1]:
                pairs.setdefault(name, values)
    if not pairs:
        return Difference(NUMBER, " ".join(one), " ".join(other))
    warmed, seen = zip(*pairs.values(), strict=True)
    return Difference(", ".join(pairs), ", ".join(warmed), ", ".join(seen))


def unstable_finding(
    name: str, one: Sequence[str], other: Sequence[str], how: str, smallest: str
) -> Finding:
    """A KEY-UNSTABLE for a launch that had the keys `one` and then, evaluated `how`, `other`."""
    differs = difference(one, other)
    return Finding(
        "KEY-UNSTABLE",
        name,
        f"{name}: the key of one launch depends on more than its arguments: evaluated {how}, it "
        f"has another `{differs.field}`",
        *differs,
        smallest=smallest,
        advice="compute the key from the arguments of the launch alone, and of values",
    )


class KeyTable(msgspec.Struct, frozen=True):
    """The keys of a kernel's launches in one process: `points` are the launches as text, and `keys`
    what each needs, nothing for one that fails.
    """

    kernel: str
    points: list[str] = []
    keys: list[list[str]] = []


def table_findings(one: KeyTable, other: KeyTable, how: str) -> Iterable[Finding]:
    """A KEY-UNSTABLE for the first launch whose keys differ between two tables; `how` says what was
    done differently. None where they are not of the same launches.
    """
    if one.points != other.points:  # one of them could not be run, for example
        return
    for point, first, second in zip(one.points, one.keys, other.keys, strict=True):
        if first != second:
            yield unstable_finding(one.kernel, first, second, how, point)
            return
