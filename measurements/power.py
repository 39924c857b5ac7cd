"""How good is the rule of `jitwarm compare` on this machine? Its false alarms, and what it finds.

    python -m measurements.power [SCENARIO] [--runs 120] [--out FILE] [--from FILE] [--no-commits]

Records start-ups of one code on a small scenario (a fresh process with cold caches each, on the
stub device if there is no GPU), puts 2,000 comparisons together from them for each number of pairs,
and prints how many say SLOWER although nothing changed, and the smallest slowdown that 90 % of them
find. The same again with the noise scaled so that a pair spreads by 5 %. Then the six commits of
`measurements.six_commits` are compared with their base for real, the slow one slowed by real work.

Exits with 1 if the rule does not hold what docs/compare.md says of it. The file is what
`jitwarm compare --calibration FILE` takes. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from tabulate import tabulate

from jitwarm.errors import StoredFileError
from jitwarm.gate.calibration import (
    Calibration,
    PowerRow,
    calibrate,
    every_window,
    pair_spread,
    power,
    read_calibration,
    rule_constants,
    scaled_to,
    write_calibration,
)
from jitwarm.gate.pairs import Sample, Side
from jitwarm.gate.places import layout
from jitwarm.gate.rule import EFFECT, PAIRS, POWER
from jitwarm.gate.sampling import ProcessSampler, Request
from jitwarm.gate.worktrees import environment, repository_of, scratch_folder
from jitwarm.scenario import Case
from measurements.six_commits import COMMITS, build

SCENARIO = "examples/own_kernel/scenario.toml"
OUT = "reports/out/calibration.json"
NUMBERS = (8, 10, 12, 14, 16, 20, 24)
LEAST_RUNS = 100
# What docs/compare.md promises.
MOST_FALSE_ALARMS = 0.01
WIDEST = 0.05
HEAD = ("pairs", "false alarms", "90 % find", f"finds +{EFFECT:.0%}")


def measure(scenario: Path, arguments: Sequence[str], runs: int) -> list[Sample]:
    """`runs` start-ups of the code as it is, behind one that is not kept."""
    repository = repository_of(scenario.parent)
    place = layout(repository, scenario, environment().get("PYTHONPATH", ""))
    samples = []
    with scratch_folder() as scratch:
        roots: dict[Side, Path] = {"base": repository, "head": repository}
        sampler = ProcessSampler(Request(roots, place, place.scenario, tuple(arguments), scratch))
        sampler.sample("base", -1)
        for index in range(runs):
            samples.append(sampler.sample("base", index))
            if (index + 1) % 10 == 0:
                _note(f"{index + 1} of {runs} runs, {samples[-1].cpu_s:.2f} s the last")
    return samples


def record(scenario: Path, arguments: Sequence[str], runs: int) -> Calibration:
    """The calibration of one case of a scenario."""
    before = os.getloadavg()[0]
    samples = measure(scenario, arguments, runs)
    case = msgspec.convert(samples[0].case, Case)
    return calibrate(case.name, case.label, samples, (before, os.getloadavg()[0]), NUMBERS)


def judged_again(path: Path) -> Calibration:
    """Stored runs under the rule as it is now: the rows in the file may be another rule's.

    Raises `StoredFileError`, for too few runs too.
    """
    stored = read_calibration(path)
    if len(stored.cpu_s) < LEAST_RUNS or min(stored.cpu_s) <= 0:
        raise StoredFileError(path, f"tells nothing: it takes {LEAST_RUNS} runs with times")
    times = np.array(stored.cpu_s)
    return msgspec.structs.replace(
        stored,
        rule=rule_constants(),
        pair_spread=pair_spread(times),
        rows=tuple(power(times, count) for count in NUMBERS),
    )


def told(found: Calibration) -> tuple[str, list[str]]:
    """The tables for people, and what does not hold, a line each."""
    times = np.array(found.cpu_s)
    machine, versions = found.machine, found.versions
    python, torch, triton = (versions.get(name, "-") for name in ("python", "torch", "triton"))
    about = f"{found.scenario} {found.case}".strip()
    ground = f"{machine.processor}, {machine.cores} cores, {machine.system}; {found.device.name}"
    load = f"load average {found.load[0]:.1f} before, {found.load[1]:.1f} after"
    cpu = f"{np.median(times):.2f} s, {times.min():.2f} to {times.max():.2f} s"
    stretches = every_window(times, PAIRS)
    lines = [
        f"{about}, {len(times)} runs of one code, {found.recorded_at[:10]}",
        ground,
        f"Python {python}, torch {torch}, triton {triton}; {load}",
        f"processor time: median {cpu}; a pair spreads by {found.pair_spread:.1%}",
        f"wall clock: median {np.median(found.wall_s):.2f} s",
        "",
        _table(found.rows),
        "",
        f"every stretch of {PAIRS} pairs as it was measured: {stretches:.1%} false alarms",
    ]
    wrong = _wrong(f"pairs spread by {found.pair_spread:.1%}", found.rows, found.pair_spread)
    wide = scaled_to(times, WIDEST)
    rows = [power(wide, count) for count in NUMBERS]
    lines += ["", f"the same noise, scaled to a pair spread of {WIDEST:.0%}", "", _table(rows)]
    return "\n".join(lines), wrong + _wrong(f"pairs spread by {WIDEST:.0%}", rows, WIDEST)


def _table(rows: Sequence[PowerRow]) -> str:
    cells = [
        (
            row.pairs,
            f"{row.false_alarms:.2%}",
            f"+{row.smallest_found:.1%}",
            f"{row.power_at_effect:.1%}",
        )
        for row in rows
    ]
    return str(tabulate(cells, headers=HEAD, colalign=("right",) * len(HEAD)))


def _wrong(where: str, rows: Sequence[PowerRow], spread: float) -> list[str]:
    row = next(row for row in rows if row.pairs == PAIRS)
    wrong = []
    if row.false_alarms > MOST_FALSE_ALARMS:
        wrong.append(f"{where}: {row.false_alarms:.2%} false alarms with {PAIRS} pairs")
    if spread <= WIDEST and row.power_at_effect < POWER:
        wrong.append(f"{where}: +{EFFECT:.0%} is found by {row.power_at_effect:.1%} only")
    return wrong


def commits(pairs: int) -> list[str]:
    """Compare the six commits for real; prints a row each and returns what is wrong."""
    wrong, rows = [], []
    with tempfile.TemporaryDirectory(prefix="jitwarm-commits-") as folder:
        build(Path(folder) / "measured")
        samples = measure(Path(folder) / "measured/scenario.toml", (), 5)
        base_s = float(np.median([sample.cpu_s for sample in samples]))
        repository = Path(folder) / "engine"
        hashes = build(repository, base_s)
        for commit in COMMITS:
            _note(f"commit {commit.name}: {pairs} pairs")
            start = time.perf_counter()
            command = [sys.executable, "-m", "jitwarm", "compare", "scenario.toml", "--json"]
            command += ["--base", hashes["base"], "--head", hashes[commit.name]]
            done = subprocess.run(
                [*command, "--pairs", str(pairs)],
                cwd=repository,
                env=environment(),
                capture_output=True,
                check=False,
            )
            spent = time.perf_counter() - start
            if not done.stdout:
                wrong.append(f"{commit.name}: {done.stderr.decode()[-500:]}")
                continue
            (said,) = json.loads(done.stdout)["statements"]
            right = said["kind"] in commit.times and done.returncode == commit.times[said["kind"]]
            _note(f"  {said['kind']}, exit {done.returncode}, {spent:.0f} s")
            rows.append((commit.name, said["kind"], done.returncode, f"{spent:.0f}", said["text"]))
            if not right:
                wrong.append(f"{commit.name}: {said['kind']}, exit {done.returncode}")
    print(tabulate(rows, headers=("commit", "verdict", "exit", "s", "what"), maxcolwidths=90))
    return wrong


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, or read, and judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("scenario", nargs="?", default=SCENARIO)
    add("--case", action="append", help="as of jitwarm warm: it has to choose one case")
    add("--device", choices=("auto", "stub", "cuda"), default="auto")
    add("--runs", type=int, default=120, help="start-ups that are recorded (default 120)")
    add("--out", default=OUT, help=f"the calibration file that is written (default {OUT})")
    add("--from", dest="stored", metavar="FILE", help="judge a stored calibration, record nothing")
    add("--no-commits", action="store_true", help="leave the six commits out")
    add("--pairs", type=int, default=PAIRS, help=f"of the six commits (default {PAIRS})")
    options = parser.parse_args(arguments)
    if options.runs < LEAST_RUNS:
        parser.error(f"--runs: at least {LEAST_RUNS} tell something of a rule for pairs")
    if options.stored:
        try:
            found = judged_again(Path(options.stored))
        except StoredFileError as error:
            _note(str(error))
            return error.exit_code
    else:
        wanted = [f"--device={options.device}", *(f"--case={one}" for one in options.case or ())]
        found = record(Path(options.scenario), wanted, options.runs)
        write_calibration(Path(options.out), found)
        _note(f"written to {options.out}")
    text, wrong = told(found)
    print(text, flush=True)
    if not options.no_commits:
        print()
        wrong += commits(options.pairs)
    print("\n" + ("\n".join(f"WRONG {one}" for one in wrong) or "the rule holds"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
