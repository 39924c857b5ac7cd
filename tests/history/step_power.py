"""How often steps are found in noise alone, and how often real ones are: the tables of
docs/report.md.

`python tests/history/step_power.py`, a minute.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from jitwarm.history.steps import find_steps

DRAWS = {
    "normal": lambda source, noise: source.gauss(1, noise),
    "lognormal": lambda source, noise: source.lognormvariate(0, noise),
    "Laplace": lambda source, noise: (
        1 + noise / 1.414 * (source.expovariate(1) - source.expovariate(1))
    ),
    "uniform": lambda source, noise: source.uniform(1 - 1.73 * noise, 1 + 1.73 * noise),
    "5 % stalls of 1.8 times": lambda source, noise: (
        source.gauss(1, noise) * (1.8 if source.random() < 0.05 else 1)
    ),
}
HISTORIES = 500
RUNS, NOISES, STEPS = (6, 8, 12, 20, 40, 100), (0.02, 0.05, 0.10, 0.20), (0.1, 0.2, 0.5)


def false_steps(draw, runs, noise):
    """The share of histories of noise alone with a step in them, and with an open end."""
    source = random.Random(f"{runs} {noise}")
    found = [find_steps([draw(source, noise) for _ in range(runs)]) for _ in range(HISTORIES)]
    steps = sum(len(one.levels) > 1 for one in found)
    return steps / HISTORIES, sum(one.open > 0 for one in found) / HISTORIES


def found_steps(runs, last, noise, step):
    """The share of histories with a step before their `last` runs in which it is found."""
    found = 0
    for seed in range(HISTORIES):
        source = random.Random(seed)
        values = [
            source.gauss(1, noise) * (1 + step if place >= runs - last else 1)
            for place in range(runs)
        ]
        found += len(find_steps(values).levels) > 1
    return found / HISTORIES


def main():
    print("| noise alone | histories with a step: mean, worst | with an open end: mean |")
    for name, draw in DRAWS.items():
        shares = [false_steps(draw, runs, noise) for runs in RUNS for noise in NOISES]
        steps, ends = zip(*shares, strict=True)
        mean, end = sum(steps) / len(steps), sum(ends) / len(ends)
        print(f"| {name} | {mean:.1%}, {max(steps):.1%} | {end:.1%} |")
    print(f"| noise | runs, after the step | {' | '.join(f'+{step:.0%}' for step in STEPS)} |")
    for noise in (0.03, 0.05, 0.10):
        for runs, last in ((12, 6), (30, 3), (30, 5), (40, 20)):
            shares = [found_steps(runs, last, noise, step) for step in STEPS]
            print(f"| {noise:.0%} | {runs}, {last} | {' | '.join(f'{s:.0%}' for s in shares)} |")


if __name__ == "__main__":
    main()
