"""Judge one case: two plans against each other and the expectation, and its replays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from jitwarm.amounts import counted
from jitwarm.errors import WorkerError
from jitwarm.gate.counts import CasePlan, case_plan
from jitwarm.gate.expectation import CaseRows, plan_of
from jitwarm.gate.judge_counts import Place, judge_counts, soaked
from jitwarm.gate.judge_replay import judge_replays
from jitwarm.gate.ranks import ranks_text
from jitwarm.gate.verdict import Statement
from jitwarm.jobs import Answer, RankReplay
from jitwarm.proof.real_steps import SWITCH_ON, SWITCHED_OFF
from jitwarm.tally import BASELINE, GATE, RUN

Outcome = Answer | WorkerError


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """What was concluded of a case: `compared` kernels, `plan` if it may become the expectation,
    and what was replayed.
    """

    statements: tuple[Statement, ...]
    compared: int
    plan: CasePlan | None
    replays: tuple[RankReplay, ...] = ()


def check_case(
    place: Place, rows: CaseRows | None, first: Outcome, second: Outcome, *, enabled: bool = True
) -> CheckedCase:
    """Judge what two processes answered. `rows` is the case's expectation, None if it has none;
    `enabled` is the case's switch of warm-up.
    """
    answers = [one for one in (first, second) if isinstance(one, Answer)]
    broken = list(_broken(place, (first, second)))
    if len(answers) < 2:
        return CheckedCase(tuple(broken), 0, None)
    plan, other = map(case_plan, answers)
    expected = plan_of(rows) if rows is not None else None
    said, compared = [], 0
    keys = sum(len(kernel.all_keys) for kernel in plan.kernels.values())
    if not plan.kernels and not (expected and expected.kernels):
        text = "no kernel is registered, so there is nothing to compare"
        said.append(place.say("RUN-FAILED", RUN, text))
    unstable = list(_unstable(place, plan, other))
    if expected is None:
        has = f"{counted(len(plan.kernels), 'kernel')}, {counted(keys, 'key')}"
        said.append(place.say("NEW", BASELINE, f"has no expectation: {has}"))
    else:
        told = {one.kernel for one in unstable}
        compared = len({*expected.kernels, *plan.kernels})
        differing = judge_counts(place, expected, plan)
        said += soaked([one for one in differing if one.kernel not in told], _reasons(rows))
    names = _names(expected, plan)
    replays = [one for answer in answers for one in answer.replays]
    missed = list(judge_replays(place, replays, names))
    if keys and not enabled:
        text = f"{SWITCHED_OFF}: none of {counted(keys, 'planned key')} is made ready"
        off = msgspec.structs.replace(place.say("MISS", GATE, text), advice=SWITCH_ON)
        missed.insert(0, off)
    # A case without any kernel is no expectation: it would pass whatever is lost later.
    fit = plan.kernels and not broken and not unstable
    statements = (*broken, *unstable, *missed, *said)
    return CheckedCase(statements, compared, plan if fit else None, tuple(replays))


def _broken(place: Place, outcomes: tuple[Outcome, Outcome]) -> Iterator[Statement]:
    """Processes that died, and kernels that cannot be planned, each once."""
    title = f"{place.scenario} {place.case}".strip()
    failed: dict[tuple[str, str], list[int]] = {}
    died: dict[str, int] = {}
    for one in outcomes:
        if isinstance(one, WorkerError):
            died[str(one).removeprefix(f"{title}: ")] = one.exit_code
            continue
        for rank, warmed in zip(one.plans, one.ranks, strict=True):
            for failure in warmed.failed:
                failed.setdefault((failure.kernel, failure.error), []).append(rank.rank)
    for text, code in died.items():
        yield place.say("RUN-FAILED", code, text)
    for (kernel, error), ranks in failed.items():
        there = "" if len(set(ranks)) == 1 else f" ({ranks_text(ranks)})"
        yield place.say("RUN-FAILED", RUN, f"cannot be planned{there}: {error}", kernel)


def _unstable(place: Place, plan: CasePlan, other: CasePlan) -> Iterator[Statement]:
    """What two processes of the same code do not agree on, in the words of a difference."""
    for one in judge_counts(place, plan, other):
        if one.code:
            yield place.say(
                "NONDETERMINISTIC",
                GATE,
                f"two processes of this very code disagree: {one.text}",
                one.kernel,
                one.details,
            )


def _reasons(rows: CaseRows | None) -> dict[str, str]:
    if rows is None:
        return {}
    reasons = {name: kernel.soaking for name, kernel in rows.kernels.items()} | {"": rows.soaking}
    return {name: reason for name, reason in reasons.items() if reason}


def _names(expected: CasePlan | None, plan: CasePlan) -> Mapping[str, str]:
    """Kernels by the path of their function; what is planned wins over what was."""
    return {
        path: name
        for case in (expected, plan)
        if case is not None
        for name, kernel in case.kernels.items()
        for path in kernel.paths
    }
