"""`jitwarm faults`: run fault files, and compare what is found with what they expect."""

from __future__ import annotations

import argparse

from jitwarm.commands.options import positive
from jitwarm.faults.run import run_faults


def add_options(command: argparse.ArgumentParser) -> None:
    """The files, and processes at once."""
    add = command.add_argument
    add("files", nargs="+", metavar="FILE", help="a fault file, or a folder of them")
    add("--jobs", type=positive, help="processes at once")
    add("--json", action="store_true", help="one JSON object a line on stdout")


def faults(options: argparse.Namespace) -> int:
    """Each file in a process of its own; one table of all."""
    return run_faults(options.files, jobs=options.jobs, as_json=options.json)
