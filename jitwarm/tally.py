"""Do one thing for each chosen case, whatever happens to the others, and sum it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from jitwarm.amounts import counted
from jitwarm.errors import NotWrittenError, RunError, WorkerError
from jitwarm.scenario import Case, Scenario

OK, GATE, USAGE, RUN, BASELINE = 0, 1, 2, 3, 4
# Of the codes of many cases the last of these is told: a scenario that could not be tried, or has
# no baseline, must not hide a miss, and neither a run that failed.
SEVERITY = (OK, USAGE, BASELINE, GATE, RUN)


def worst(codes: Iterable[int]) -> int:
    """The exit code of many: the most severe of them."""
    return max(codes, key=SEVERITY.index, default=OK)


@dataclass(slots=True)
class Tally:
    """How many cases ended with each exit code, what those have that failed a gate, and the names
    of the scenarios that were refused.

    A refused scenario counts once, however many cases it has.
    """

    codes: Counter[int] = field(default_factory=Counter)
    gated: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code of them all."""
        return worst(self.codes)

    def text(self) -> str:
        """One line for people."""
        counts = [(self.codes[OK], "ok"), *((count, words) for words, count in self.gated.items())]
        counts += [(self.codes[BASELINE], "without a baseline"), (self.codes[RUN], "failed")]
        parts = [f"{count:,} {words}" for count, words in counts if count]
        cases = sum(count for code, count in self.codes.items() if code != USAGE)
        line = f"{counted(cases, 'case')}: {', '.join(parts) or 'none was run'}"
        if self.refused:
            line += f"; not run: {', '.join(self.refused)}"
        return line


def each(
    chosen: Sequence[tuple[Scenario, Case]],
    one: Callable[[Scenario, Case], int | str],
    complain: Callable[[str], None],
) -> Tally:
    """Do `one`, which returns an exit code, for all chosen cases. Of a case that failed a gate it
    may return what it has, as in "with misses".

    A case whose process fails, or whose files find no room, costs the others nothing. One that its
    model refuses, for a library that is not installed or heads that cannot be divided, ends its
    scenario: its other cases would be refused too, or are not what was asked for. `complain` is
    told of both in a line.
    """
    tally, refused = Tally(), set[str]()
    for scenario, case in chosen:
        if scenario.path in refused:
            continue
        try:
            ended = one(scenario, case)
        except (WorkerError, NotWrittenError) as error:
            ended = error.exit_code
            complain(_refusal(case, error) if ended == USAGE else str(error))
            if ended == USAGE:
                refused.add(scenario.path)
                tally.refused.append(scenario.name)
        code = GATE if isinstance(ended, str) else ended
        tally.codes[code] += 1
        if code == GATE:
            tally.gated[ended if isinstance(ended, str) else "with misses"] += 1
    return tally


def _refusal(case: Case, error: RunError) -> str:
    """What the model of a case said; it may have named its scenario itself."""
    text = str(error)
    said = text.removeprefix(f"{case.title}: ")
    return said if said.startswith(f"scenario {case.name}") else text
