"""The backend keys that the traffic of some scenarios needs, as golden text.

Run as a script it writes golden files anew: `python tests/zoo/needed_keys.py [SCENARIO...]`. Review
the difference as you would review code: every line is a binary that a launch asks for.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jitwarm.harness import Settings, needed_keys
from jitwarm.scenario import Case
from jitwarm.scenario_file import load

ROOT = Path(__file__).parents[2]
# The scenarios that have a golden file, and which of their cases are in it.
SELECTED = {
    "deepseek-v3.2-dcp": "arch=sm90",
    "deepseek-v4-pro": "seqs=256,arch=sm90",
    "deepseek-v4-vision": "model=deepseek-v4-flash,arch=sm90",
}


def golden(scenario: str) -> Path:
    """The golden file of a scenario."""
    return Path(__file__).parent / "golden" / f"{scenario}.txt"


def cases(scenario: str, selector: str = "") -> tuple[Case, ...]:
    """The cases of a scenario that a selector names; by default those of its golden file."""
    loaded = load(ROOT / "scenarios" / f"{scenario}.toml")
    return loaded.select((selector or SELECTED[scenario],))


def needed_text(chosen: tuple[Case, ...]) -> str:
    """A section a case, a line a key with the ranks that need it, sorted."""
    jobs = [(case, rank) for case in chosen for rank in case.replayed_ranks]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda job: needed_keys(job[0], Settings(), job[1]), jobs))
    ranks: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (case, rank), answer in zip(jobs, answers, strict=True):
        assert answer.observed is not None
        assert answer.observed.steps == case.traffic.steps
        for key in answer.observed.launches:
            ranks[case.label][key].append(rank)
    lines = []
    for label, keys in ranks.items():
        lines.append(f"# {label}: {len(keys)} keys")
        lines += [f"rank {' '.join(map(str, who))}: {key}" for key, who in sorted(keys.items())]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    for name in sys.argv[1:] or SELECTED:
        golden(name).write_text(needed_text(cases(name)))
