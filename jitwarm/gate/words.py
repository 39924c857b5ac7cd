"""Lost and gained keys in words: the fields by which they differ from the kernel's other keys.

+6 keys: TOP_K=1024; -1 key: BLOCK=256 n=16
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jitwarm.amounts import counted
from jitwarm.gate.declared import declared_fields
from jitwarm.gate.ranks import by_ranks

ABSENT = "absent"
# Of each kind this many stand in a line.
SHOWN = 3
_VALUE_LENGTH = 48
# Comparisons of two keys, some 5 us each, that the search for the nearest key may take.
_MOST_COMPARISONS = 200_000

Fields = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Group:
    """Keys that differ in the same fields from the others; `values` are those of each key."""

    names: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    keys: tuple[str, ...]

    def text(self) -> str:
        """`TOP_K=1024, 2048`, shortened; nothing where nothing tells them apart."""
        if not self.names:
            return ""
        combinations = list(dict.fromkeys(self.values))
        same = [len({one[i] for one in combinations}) == 1 for i in range(len(self.names))]
        fixed = [
            _field(name, _cut(combinations[0][i])) for i, name in enumerate(self.names) if same[i]
        ]
        rest = [i for i in range(len(self.names)) if not same[i]]
        parts = [" ".join(_some(fixed, "fields"))] if fixed else []
        if len(rest) == 1:
            values = list(dict.fromkeys(one[rest[0]] for one in combinations))
            listed = ", ".join(_some([_cut(value) for value in values]))
            parts.append(_field(self.names[rest[0]], listed))
        elif rest:
            texts = [
                " ".join(_some([_field(self.names[i], _cut(one[i])) for i in rest], "fields"))
                for one in combinations
            ]
            parts.append(", ".join(_some(texts)))
        return " with ".join(parts)


def grouped(changed: Iterable[str], others: Collection[str]) -> list[Group]:
    """Every key of `changed` in exactly one group, the largest groups first.

    A key is told from the `others` by the values that none of them has; a new combination of known
    values by the fields in which the nearest other key differs. Without others it is told by what
    varies among `changed` itself.
    """
    ordered = sorted(changed)
    taken = {key: declared_fields(key) for key in ordered}
    reference = [declared_fields(key) for key in sorted(others)]
    told_from = reference or list(taken.values())
    known = {
        name: {fields.get(name, ABSENT) for fields in told_from}
        for name in dict.fromkeys(name for fields in told_from for name in fields)
    }
    may_search = len(taken) * len(reference) <= _MOST_COMPARISONS
    found: dict[tuple[str, ...], list[tuple[tuple[str, ...], str]]] = {}
    for key, fields in taken.items():
        if reference:
            names = _new(fields, known) or (may_search and _nearest(fields, reference)) or ()
        else:
            names = tuple(name for name in known if len(known[name]) > 1)
        values = tuple(fields.get(name, ABSENT) for name in names)
        found.setdefault(names, []).append((values, key))
    groups = [
        Group(names, tuple(values for values, _ in ones), tuple(key for _, key in ones))
        for names, ones in found.items()
    ]
    return sorted(groups, key=lambda group: (-len(group.keys), group.names))


def change_text(
    lost: Mapping[int, Collection[str]],
    gained: Mapping[int, Collection[str]],
    before: Mapping[int, Collection[str]],
    after: Mapping[int, Collection[str]],
) -> str:
    """One line for what changed by rank; the four have the same ranks, those that are compared."""
    texts = {
        rank: "; ".join(
            part
            for part in (
                _side("+", gained[rank], before[rank]),
                _side("-", lost[rank], after[rank]),
            )
            if part
        )
        for rank in before
    }
    grouped_texts = by_ranks(texts, tuple(texts))
    said = [(ranks, text) for ranks, text in grouped_texts.items() if text]
    if len(grouped_texts) == 1 and said:
        return said[0][1]
    return " | ".join(_some([f"{ranks}: {text}" for ranks, text in said], "sets of ranks"))


def _side(sign: str, changed: Collection[str], others: Collection[str]) -> str:
    if not changed:
        return ""
    groups = grouped(changed, others)
    texts = []
    for group in groups:
        text = group.text() or "other keys"
        texts.append(f"{text} ({len(group.keys)})" if len(groups) > 1 else text)
    head = f"{sign}{counted(len(changed), 'key')}"
    if len(groups) == 1 and not groups[0].names:
        return head
    return f"{head}: {', '.join(_some(texts, 'groups'))}"


def _new(fields: Fields, known: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The fields whose value no other key has, those that only the others have included."""
    own = [name for name, value in fields.items() if value not in known.get(name, ())]
    return (*own, *(n for n in known if n not in fields and ABSENT not in known[n]))


def _nearest(fields: Fields, reference: Sequence[Fields]) -> tuple[str, ...]:
    def differing(other: Fields) -> tuple[str, ...]:
        return tuple(n for n in {**fields, **other} if fields.get(n) != other.get(n))

    return min((differing(other) for other in reference), key=lambda names: (len(names), names))


def _field(name: str, value: str) -> str:
    """`x=1`; the alignment of a pointer reads as a word; the path has no name."""
    if not name:
        return value
    return f"{name} {value}" if value in ("aligned", "unaligned", ABSENT) else f"{name}={value}"


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_LENGTH else f"{text[: _VALUE_LENGTH - 3]}..."


def _some(texts: Sequence[str], what: str = "") -> list[str]:
    """The first three, and how many more there are."""
    if len(texts) <= SHOWN:
        return list(texts)
    more = f"and {len(texts) - SHOWN} more"
    return [*texts[:SHOWN], f"{more} {what}".rstrip()]
