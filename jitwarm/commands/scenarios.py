"""`jitwarm scenarios`: list scenario files and check them."""

from __future__ import annotations

import argparse

from jitwarm.commands.options import scenario_options
from jitwarm.commands.output import show
from jitwarm.commands.selection import scenario_files
from jitwarm.model import check_model
from jitwarm.tally import OK


def add_options(command: argparse.ArgumentParser) -> None:
    """The file or folder, and overrides."""
    scenario_options(command)


def scenarios(options: argparse.Namespace) -> int:
    """Each file with its cases. Raises `ScenarioError` for the first that is wrong, or has the name
    of another.
    """
    for scenario in scenario_files(options):
        for case in scenario.cases:
            check_model(case)
        quick = [case.label for case in scenario.select(scenario.quick)] if scenario.quick else []
        labels = [case.label for case in scenario.cases]
        record = {"path": scenario.path, "name": scenario.name, "cases": labels, "quick": quick}
        lines = [f"{scenario.path}: {scenario.name}, model {scenario.cases[0].model}"]
        lines += [f"  {label or 'one case'}{'  quick' * (label in quick)}" for label in labels]
        show(options, record, "\n".join(lines))
    return OK
