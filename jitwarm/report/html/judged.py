"""A case with everything that was concluded about it, and its state in a few words."""

from __future__ import annotations

from dataclasses import dataclass

from jitwarm.amounts import counted
from jitwarm.history.asv import AsvHistory
from jitwarm.history.cases import CaseHistory
from jitwarm.history.expected import Expected
from jitwarm.history.marks import Judged


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """A case, the marks of its numbers, and its expectation (None where nobody asked)."""

    history: CaseHistory
    judged: list[Judged]
    expected: Expected | None = None

    @property
    def troubled(self) -> bool:
        """Whether anything is wrong with it."""
        return any(kind == "bad" for kind, _ in states(self))

    @property
    def is_fine(self) -> bool:
        """Whether its newest run is of the newest commit, whole, and missed no key."""
        history, result = self.history, self.history.latest.result
        return not (history.not_at or history.failed_last or result.is_partial or result.missed)


@dataclass(frozen=True, slots=True)
class JudgedTree:
    """A history of asv, and the marks of its numbers."""

    history: AsvHistory
    judged: list[Judged]


def states(case: JudgedCase) -> list[tuple[str, str]]:
    """The state of a case as badges: kind and words. No `bad` one means that nothing is wrong."""
    history, result = case.history, case.history.latest.result
    found: list[tuple[str, str]] = []
    if history.failed_last:
        found.append(("bad", "newest run failed"))
    if result.failures:
        found.append(("bad", f"{counted(len(result.failures), 'process', 'processes')} failed"))
    if result.missed:
        found.append(("bad", f"{counted(result.missed, 'key')} missed"))
    if result.warm.failed:
        found.append(("bad", f"{counted(len(result.warm.failed), 'key')} failed to warm"))
    if result.idle_ranks:
        found.append(("bad", "nothing launched"))
    worse = sum(one.worse for one in case.judged)
    if worse:
        found.append(("bad", f"{counted(worse, 'number')} worse"))
    suspect = sum(one.suspect for one in case.judged)
    if suspect:
        found.append(("doubt", f"{counted(suspect, 'number')} off"))
    if case.expected is not None and case.expected.differences:
        found.append(("bad", "not as expected"))
    if history.not_at:
        found.append(("doubt", "not measured at the newest commit"))
    if not found:
        found.append(("good", "nothing missed"))
    return found
