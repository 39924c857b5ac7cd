"""The backend keys that the traffic of scenarios/deepseek-v3.2-dcp.toml needs, as golden text.

Run as a script it writes the golden file anew: `python tests/zoo/needed_keys.py`. Review the
difference as you would review code: every line is a binary that a launch asks for.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jitwarm.harness import Settings, needed_keys
from jitwarm.scenario import Case
from jitwarm.scenario_file import load

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "deepseek-v3.2-dcp.txt"
SCENARIO = ROOT / "scenarios" / "deepseek-v3.2-dcp.toml"


def cases(arch: str) -> list[Case]:
    return [case for case in load(SCENARIO).cases if case.arch == arch]


def needed_text(chosen: list[Case]) -> str:
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
    GOLDEN.write_text(needed_text(cases("sm90")))
