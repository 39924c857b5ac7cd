"""`jitwarm faults`: run fault files, and compare what is found with what they expect."""

from __future__ import annotations

import argparse

from jitwarm.faults.run import run_faults


def faults(options: argparse.Namespace) -> int:
    """Each file in a process of its own; one table of all."""
    return run_faults(options.files, jobs=options.jobs, as_json=options.json)
