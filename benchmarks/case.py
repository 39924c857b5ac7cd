"""Run one case of a scenario and reduce it to the tracked numbers.

asv imports this file from the working tree and jitwarm from the commit that is measured, so
jitwarm is imported only inside: an old commit fails its own run, not the discovery of the suite.
What is used of it (the names imported below, the record) is there since the first commit that
could run a case.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.commit import check_commit
from benchmarks.needs import GPU, lacking
from benchmarks.tracks import Cache, numbers, unmeasured

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
# Processes an arm: the median of three times is one number that a single slow start cannot move.
SAMPLES = 3
# Steps of the coverage replays.
STEPS = 100
# Without a GPU of an architecture that the case exists for: the stub device compiles for any.
STUB_ARCH = "sm90"


def run_case(scenario: str, selector: str = "", *, needs: Sequence[str] = ()) -> Cache:
    """The numbers of the one case that `selector` names in `SCENARIOS / scenario`.

    The architecture is that of the GPU here, if the scenario has cases for it, and the case runs on
    it; else the case of sm90 runs on the stub device. Raises for anything that leaves a number
    unknown; what `needs` names and this machine lacks gives a reason instead of numbers.
    """
    check_commit()

    from jitwarm.assemble import assemble
    from jitwarm.device import gpu_arch
    from jitwarm.harness import Settings, measure
    from jitwarm.scenario_file import load

    arch, loaded = gpu_arch(), load(SCENARIOS / scenario)
    arches = sorted({case.arch for case in loaded.cases})
    reason = lacking(needs, arch, arches)
    if reason:
        return unmeasured(reason)
    device, chosen = ("cuda", arch) if arch in arches else ("stub", STUB_ARCH)
    (case,) = loaded.select((",".join(filter(None, (selector, f"arch={chosen}"))),))
    started = datetime.now(UTC).isoformat(timespec="seconds")
    measured = measure(case, Settings(SAMPLES, STEPS, device), _note)
    result = assemble(loaded, case, measured, started)
    return numbers(result, measured.failures, tokens=GPU in needs)


def _note(text: str) -> None:
    print(text, file=sys.stderr)
