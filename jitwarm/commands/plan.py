"""`jitwarm plan` and `jitwarm warm`: the flow without traffic."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from jitwarm.commands.options import case_options
from jitwarm.commands.output import show
from jitwarm.commands.selection import chosen_cases, for_each, settings_of
from jitwarm.harness import Settings, plan_case, warm_case
from jitwarm.jobs import Answer
from jitwarm.report.plan import plan_record, plan_text
from jitwarm.scenario import Case, Scenario
from jitwarm.tally import OK, RUN


def add_options(command: argparse.ArgumentParser) -> None:
    """Those of a case."""
    case_options(command)


def plan(options: argparse.Namespace) -> int:
    """The keys of every rank; compiles nothing."""
    return _without_traffic(options, plan_case)


def warm(options: argparse.Namespace) -> int:
    """Plan and warm from empty caches."""
    return _without_traffic(options, warm_case)


def _without_traffic(
    options: argparse.Namespace, process: Callable[[Case, Settings], Answer]
) -> int:
    def one(_: Scenario, case: Case) -> int:
        answer = process(case, settings_of(options))
        warmed = answer.warmed
        assert warmed is not None  # both jobs carry it
        show(options, plan_record(case, answer, warmed), plan_text(case, answer, warmed))
        return RUN if warmed.failed else OK

    return for_each(options, chosen_cases(options), one)
