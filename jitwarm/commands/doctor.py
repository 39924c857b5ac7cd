"""`jitwarm doctor`: what this machine has, and whether jitwarm works on it."""

from __future__ import annotations

import argparse

from jitwarm.commands.output import note, show
from jitwarm.doctor.collect import collect
from jitwarm.report.doctor import doctor_text
from jitwarm.tally import OK, RUN


def add_options(command: argparse.ArgumentParser) -> None:
    """The form of the answer."""
    command.add_argument("--json", action="store_true", help="one JSON object on stdout")


def doctor(options: argparse.Namespace) -> int:
    """Tell it; `RUN` if something is wrong."""
    note("doctor: imports every compiler and compiles a kernel, some seconds")
    found = collect()
    show(options, found, doctor_text(found))
    return RUN if found.problems else OK
