"""Warm-up progress on stderr: one bar on a terminal, one plain line a finished kernel elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TextIO

from jitwarm import env
from jitwarm.amounts import counted
from jitwarm.plan import Plan, PlanItem
from jitwarm.report.printable import printable, without_commands
from jitwarm.scenario import Case
from jitwarm.warm import Progress

WIDTH = 24


def show_progress(case: Case, plan: Plan, stream: TextIO | None = None) -> Progress:
    """A progress callback for `warm`.

    Says the total number of keys, the current kernel and the seconds so far.
    """
    out = stream or sys.stderr
    left = Counter(item.kernel for item in plan.backend_keys.values())
    title = printable(case.title)

    def bar(done: int, total: int, item: PlanItem, seconds: float) -> None:
        filled = WIDTH * done // total
        gauge = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{total}"
        line = f"\r{title}: warming {counted(total, 'key')} {gauge} {seconds:.1f} s "
        line += printable(item.kernel)
        out.write(f"{line:<110.110}" + ("\n" if done == total else ""))
        out.flush()

    def lines(done: int, total: int, item: PlanItem, seconds: float) -> None:
        left[item.kernel] -= 1
        if not left[item.kernel]:
            name = printable(item.kernel)
            line = f"{title}: warmed {done}/{total} keys, {name} ready after {seconds:.1f} s"
            out.write(f"{without_commands(line) if env.github_actions() else line}\n")
            out.flush()

    return bar if out.isatty() else lines
