"""Options that several commands have, and the types of their values."""

from __future__ import annotations

import argparse


def scenario_options(command: argparse.ArgumentParser) -> None:
    """What every command over scenario files takes."""
    add = command.add_argument
    add("scenario", metavar="SCENARIO", help="a scenario file, or a folder of them")
    add("--set", action="append", metavar="FIELD=VALUE", help="override a field of the scenario")
    add("--json", action="store_true", help="one JSON object a line on stdout")


def choice_options(command: argparse.ArgumentParser) -> None:
    """Which cases."""
    add = command.add_argument
    add("--case", action="append", help="only cases that match, as in dcp=8,arch=sm90; repeatable")
    add("--quick", action="store_true", help="only the cases that the scenario calls quick")


def case_options(command: argparse.ArgumentParser) -> None:
    """What every command that starts measuring processes takes."""
    scenario_options(command)
    choice_options(command)
    add = command.add_argument
    add("--seed", type=int, help="seed of the traffic")
    add("--steps", type=positive, help="steps of the traffic")
    device_options(command)


def device_options(command: argparse.ArgumentParser) -> None:
    """Where it runs, and with how many threads."""
    add = command.add_argument
    add("--device", choices=("auto", "stub", "cuda"), default="auto", help="auto: a GPU if any")
    add("--jobs", type=positive, help="compile threads (default: one a core)")


def gate_options(command: argparse.ArgumentParser) -> None:
    """Where a verdict goes beside stdout: what `commands/publish.py` reads."""
    add = command.add_argument
    add("--junit", metavar="FILE", help="write the verdict as JUnit XML")
    add("--summary", metavar="FILE", help="write the verdict as Markdown, for a CI step's summary")


def positive(text: str) -> int:
    """A whole number of at least 1. Raises `ArgumentTypeError`, or ValueError for no number."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return value
