"""Run one case of a scenario and reduce it to the tracked numbers.

asv imports this file from the working tree and jitwarm from the commit that is measured, so
jitwarm is imported only inside: an old commit fails its own run, not the discovery of the suite.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.tracks import numbers

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
# Processes an arm: the median of three times is one number that a single slow start cannot move.
SAMPLES = 3


def run_case(scenario: str, selector: str, *, steps: int) -> dict[str, float]:
    """The numbers of the one case that `selector` names in `SCENARIOS / scenario`.

    It runs on the GPU if that has the case's architecture, else on the stub device. `steps` is the
    length of the coverage replays. Raises for anything that leaves a number unknown.
    """
    from jitwarm.assemble import assemble
    from jitwarm.device import gpu_arch
    from jitwarm.harness import Settings, measure
    from jitwarm.scenario_file import load

    loaded = load(SCENARIOS / scenario)
    (case,) = loaded.select((selector,))
    device = "cuda" if gpu_arch() == case.arch else "stub"
    started = datetime.now(UTC).isoformat(timespec="seconds")
    measured = measure(case, Settings(SAMPLES, steps, device), _note)
    return numbers(assemble(loaded, case, measured, started), measured.failures)


def _note(text: str) -> None:
    print(text, file=sys.stderr)
