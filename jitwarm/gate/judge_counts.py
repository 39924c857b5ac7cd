"""Hold the plan of a case against its expectation: every difference fails, up or down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from jitwarm.amounts import counted
from jitwarm.gate.counts import CasePlan, KernelPlan
from jitwarm.gate.ranks import EVERY, by_ranks, ranks_text
from jitwarm.gate.verdict import Kind, Statement
from jitwarm.gate.words import change_text
from jitwarm.tally import BASELINE, GATE, OK

COUNTED = ("registrations", "distinct_registrations", "points", "keys", "backend_keys")
_WORDS = {"distinct_registrations": "distinct registrations", "backend_keys": "binaries"}


@dataclass(frozen=True, slots=True)
class Place:
    """What statements about a case have in common."""

    scenario: str
    case: str
    file: str
    advice: str

    def say(
        self, kind: Kind, code: int, text: str, kernel: str = "", details: Iterable[str] = ()
    ) -> Statement:
        """A statement here; what needs no change has no advice."""
        advice = self.advice if kind in ("KEYS", "COUNT", "MISSING-ROW", "NEW", "SOAKING") else ""
        return Statement(
            kind, code, self.scenario, text, self.case, kernel, tuple(details), advice, self.file
        )


def judge_counts(place: Place, expected: CasePlan, planned: CasePlan) -> list[Statement]:
    """What differs, a statement a kernel and kind, and `SAME` for each kernel that does not.

    Only what no kernel explains is said of the case itself.
    """
    if expected.arch != planned.arch:
        text = f"the expectation is for {expected.arch}, this is {planned.arch}"
        return [place.say("NOT-COMPARABLE", BASELINE, text)]
    said = [
        one
        for name in sorted({*expected.kernels, *planned.kernels})
        for one in _kernel(place, name, expected, planned)
    ]
    of_case = list(_case(expected, planned, explained=any(one.code for one in said)))
    if of_case:
        said.insert(0, place.say("COUNT", GATE, "; ".join(of_case)))
    return said


def soaked(statements: Iterable[Statement], reasons: Mapping[str, str]) -> list[Statement]:
    """The statements; differences of what soaks are remarks that say the reason.

    `reasons` are by kernel; that of the whole case has the empty name. What soaks may change, and
    not get lost: a kernel that is gone fails.
    """
    found = []
    for one in statements:
        reason = reasons.get("") or reasons.get(one.kernel)
        if reason and one.code == GATE and one.kind != "MISSING-ROW":
            text = f"{one.text} (soaking: {reason})"
            one = msgspec.structs.replace(one, kind="SOAKING", code=OK, text=text)  # noqa: PLW2901
        found.append(one)
    return found


def _case(expected: CasePlan, planned: CasePlan, *, explained: bool) -> Iterator[str]:
    if expected.ranks.keys() != planned.ranks.keys():
        yield f"{ranks_text(expected.ranks)} expected, {ranks_text(planned.ranks)} planned"
    for name in ("layers", "keys", "backend_keys", "digest"):
        if explained and name != "layers":
            return  # a kernel has said more
        texts = {
            rank: f"{_WORDS.get(name, name)} {getattr(was, name)} -> {getattr(now, name)}"
            for rank, was in expected.ranks.items()
            if (now := planned.ranks.get(rank)) and getattr(was, name) != getattr(now, name)
        }
        yield from _at_ranks(texts, planned)


def _kernel(place: Place, name: str, expected: CasePlan, planned: CasePlan) -> Iterator[Statement]:
    was, now = expected.kernels.get(name), planned.kernels.get(name)
    if now is None:
        assert was is not None  # the name is of one of the two
        lost = {rank: keys for rank, keys in was.keys.items() if keys}
        text = "is no longer registered" + (
            f": -{counted(len(was.all_keys), 'key')}" if lost else " (it needed no key)"
        )
        yield place.say("MISSING-ROW", GATE, text, name, _details("-", lost, expected))
        return
    if was is None:
        gained = {rank: keys for rank, keys in now.keys.items() if keys}
        text = f"is new: +{counted(len(now.all_keys), 'key')}"
        yield place.say("NEW", GATE, text, name, _details("+", gained, planned))
        return
    same_keys = True
    for statement in _compared(place, name, (expected, was), (planned, now)):
        same_keys = False
        yield statement
    if same_keys:
        yield place.say("SAME", OK, f"{counted(len(now.all_keys), 'key')}, as expected", name)


def _compared(
    place: Place,
    name: str,
    before: tuple[CasePlan, KernelPlan],
    after: tuple[CasePlan, KernelPlan],
) -> Iterator[Statement]:
    (expected, was), (planned, now) = before, after
    ranks = [rank for rank in planned.ranks if rank in expected.ranks]
    old = {rank: was.keys.get(rank, frozenset()) for rank in ranks}
    new = {rank: now.keys.get(rank, frozenset()) for rank in ranks}
    lost = {rank: old[rank] - new[rank] for rank in ranks}
    gained = {rank: new[rank] - old[rank] for rank in ranks}
    changed = any(lost.values()) or any(gained.values())
    if changed:
        details = [*_details("+", gained, planned), *_details("-", lost, planned)]
        yield place.say("KEYS", GATE, change_text(lost, gained, old, new), name, details)
    texts = {}
    for rank in ranks:
        a, b = was.counts.get(rank), now.counts.get(rank)
        if a is None or b is None:
            if a is not b:
                texts[rank] = "no longer registered" if b is None else "registered, which is new"
            continue
        texts[rank] = ", ".join(
            f"{_WORDS.get(one, one)} {getattr(a, one)} -> {getattr(b, one)}"
            for one in COUNTED
            if getattr(a, one) != getattr(b, one) and not (one == "keys" and changed)
        )
    changes = list(_at_ranks({rank: text for rank, text in texts.items() if text}, planned))
    if changes:
        yield place.say("COUNT", GATE, "; ".join(changes), name)
    same_ranks = expected.ranks.keys() == planned.ranks.keys()
    if not changed and not changes and same_ranks and was.digest != now.digest:
        keys = counted(len(now.all_keys), "declared key")
        text = f"other binaries for the same {keys}: arguments, options or target differ"
        yield place.say("KEYS", GATE, text, name, _details("now ", now.backend_keys, planned))


def _at_ranks(texts: Mapping[int, str], planned: CasePlan) -> Iterator[str]:
    """Each text once, with the ranks it is about unless those are all."""
    for ranks, text in by_ranks(texts, planned.ranks).items():
        yield (
            text if len(planned.ranks) == len(texts) == 1 or ranks == _EVERY else f"{ranks}: {text}"
        )


_EVERY = "every rank"


def _details(sign: str, keys: Mapping[int, Iterable[str]], case: CasePlan) -> Iterator[str]:
    """A line a key, with the ranks it is about unless those are all."""
    where: dict[str, list[int]] = {}
    for rank, texts in keys.items():
        for text in texts:
            where.setdefault(text, []).append(rank)
    for text, ranks in sorted(where.items()):
        there = ranks_text(ranks, case.ranks)
        yield f"{sign} {text}".replace("  ", " ") + ("" if there == EVERY else f" ({there})")
