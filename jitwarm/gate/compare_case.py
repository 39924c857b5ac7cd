"""Compare base and head on one case: may they be compared, and what do their times say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from jitwarm.amounts import counted
from jitwarm.errors import SideFailed
from jitwarm.gate.comparable import (
    foreign_modules,
    holds_jitwarm,
    machine_differences,
    outside_copies,
    own_modules,
)
from jitwarm.gate.key_changes import key_count
from jitwarm.gate.pairs import SIDES, Pairs, Sample, Sampler, Side, collect, first_runs
from jitwarm.gate.times import conclude_times
from jitwarm.gate.verdict import Kind, Statement
from jitwarm.gate.worktrees import Tree, working_tree
from jitwarm.tally import BASELINE, RUN

# At most so many files or fields are named.
NAMED = 4
_HIDES = (
    "hides the side's own: put its source folder on PYTHONPATH, as in PYTHONPATH=src jitwarm "
    "compare ..."
)


class Comparison(msgspec.Struct, frozen=True):
    """One case that is compared: its names, the file of its scenario, both sides, and how: `pairs`
    and `effect` as `gate/rule.py` means them.
    """

    scenario: str
    case: str
    file: str
    repository: Path
    trees: dict[Side, Tree]
    pairs: int
    effect: float

    @property
    def roots(self) -> dict[Side, Path]:
        """The folders of the sides."""
        return {side: tree.folder for side, tree in self.trees.items()}

    def statement(
        self, kind: Kind, code: int, text: str, details: tuple[str, ...] = (), advice: str = ""
    ) -> Statement:
        """Something that is said of this case instead of its times."""
        return Statement(kind, code, self.scenario, text, self.case, "", details, advice, self.file)


class Compared(msgspec.Struct, frozen=True):
    """What was concluded, and the samples, None where none or not all were taken."""

    statement: Statement
    pairs: Pairs | None = None


def compare_case(what: Comparison, sampler: Sampler, note: Callable[[str], None]) -> Compared:
    """Measure and judge one case. A side that does not run is a statement, not an error."""
    title = f"{what.scenario} {what.case}".strip()
    try:
        note(f"{title}: first run of base and of head, not timed")
        first = first_runs(sampler)
        problem = _not_comparable(what, Pairs(*first, (), ()))
        if problem is not None:
            return Compared(problem)

        def told(number: int, base: Sample, head: Sample) -> None:
            times = f"base {base.cpu_s:.2f} s, head {head.cpu_s:.2f} s"
            note(f"{title}: pair {number} of {what.pairs}: {times}")

        pairs = collect(sampler, first, what.pairs, told)
    except SideFailed as error:
        tree = what.trees["base" if error.side == "base" else "head"]
        text = f"{error.side} does not run ({tree.title}): {error.problem}"
        return Compared(what.statement("RUN-FAILED", RUN, text))
    problem = _not_comparable(what, pairs) or _changed(what)
    if problem is not None:
        return Compared(problem, pairs)
    said = conclude_times(
        what.scenario, what.case, pairs, what.effect, what.file, _remarks(what, pairs)
    )
    return Compared(said, pairs)


def _not_comparable(what: Comparison, pairs: Pairs) -> Statement | None:
    """Why these runs must not be compared, if they must not."""
    first: dict[Side, Sample] = {"base": pairs.first_base, "head": pairs.first_head}
    own = {side: own_modules(side, what.roots, first[side].modules) for side in SIDES}
    for side in SIDES:
        foreign = foreign_modules(side, what.roots, what.repository, first[side].modules)
        if foreign:
            return what.statement(
                "NOT-COMPARABLE",
                BASELINE,
                f"{side} imported {counted(len(foreign), 'foreign file')}, such as {foreign[0]}",
                details=tuple(foreign),
                advice=f"a package installed from the working tree {_HIDES}",
            )
        copies = outside_copies(what.roots[side], first[side].modules)
        if copies:
            return what.statement(
                "NOT-COMPARABLE",
                BASELINE,
                f"{side} has a package {Path(copies[0]).name} and ran another: {copies[0]}",
                details=tuple(copies),
                advice=f"an installed package {_HIDES}",
            )
    idle = [side for side in SIDES if not own[side]]
    if len(idle) == 1 or (idle and first["base"].case == first["head"].case):
        return what.statement(
            "NOT-COMPARABLE",
            BASELINE,
            f"{' and '.join(idle)} imported no file of the repository, only code from elsewhere",
            advice="compare where the code is imported from the repository: from its root, or with "
            "its source folder on PYTHONPATH",
        )
    own_jitwarm = any(map(holds_jitwarm, own.values()))
    differences = machine_differences(pairs, own_jitwarm=own_jitwarm)
    if differences:
        return what.statement(
            "NOT-COMPARABLE",
            BASELINE,
            f"base and head ran on different ground: {differences[0]}",
            details=tuple(differences),
        )
    return None


def _changed(what: Comparison) -> Statement | None:
    tree = what.trees["head"]
    if tree.name or working_tree(what.repository).state == tree.state:
        return None
    text = "the working tree changed while it was measured, so head is no one thing"
    return what.statement("NOT-COMPARABLE", BASELINE, text)


def _remarks(what: Comparison, pairs: Pairs) -> tuple[str, ...]:
    """Whose code it was, and doubts, a line each: a terminal shows twelve lines in all."""
    first: Mapping[Side, Sample] = {"base": pairs.first_base, "head": pairs.first_head}
    origins = []
    for side in SIDES:
        count = len(own_modules(side, what.roots, first[side].modules))
        origins.append(f"{side}: {what.trees[side].title}, {counted(count, 'module')} of its own")
    doubts = "; ".join(_doubts(what, first))
    return ("; ".join(origins), *([doubts] * bool(doubts)))


def _doubts(what: Comparison, first: Mapping[Side, Sample]) -> Iterator[str]:
    base, head = what.trees["base"], what.trees["head"]
    if base.tree == head.tree and not head.changed:
        yield "base and head are the same code"
    if not key_count(first["base"]) and not key_count(first["head"]):
        yield "neither side warms a key: only imports, the model and enumeration are timed"
    changed = list(_changed_fields("$", first["base"].case, first["head"].case))
    if changed:
        more = f" and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
        yield f"the case itself changed: {', '.join(changed[:NAMED])}{more}"
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > cores + 0.5:
        yield f"load average {load:.1f} on {cores} cores: the machine was busy"


def _changed_fields(path: str, base: object, head: object) -> Iterator[str]:
    if isinstance(base, dict) and isinstance(head, dict):
        for name in sorted({*base, *head}):
            yield from _changed_fields(f"{path}.{name}", base.get(name), head.get(name))
    elif base != head:
        yield f"{path} {base!r} -> {head!r}"
