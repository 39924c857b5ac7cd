"""The command line in fresh processes, and the numbers of its records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def jitwarm(*arguments, env=None):
    """Run `python -m jitwarm` in the project's folder."""
    return subprocess.run(
        [sys.executable, "-m", "jitwarm", *arguments],
        cwd=ROOT,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )


def records(done, code=0):
    """The records that a command printed with --json."""
    assert done.returncode == code, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def funnel(record):
    """(layers, registrations, distinct, keys, backend keys) of a record."""
    names = ("layers", "registrations", "distinct_registrations", "keys", "backend_keys")
    return tuple(record["funnel"][name] for name in names)


def rows(record):
    """(registrations, distinct, keys, backend keys) of each kernel."""
    names = ("registrations", "distinct_registrations", "keys", "backend_keys")
    return {k["kernel"]: tuple(k[name] for name in names) for k in record["kernels"]}
