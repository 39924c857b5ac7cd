"""Warm-up progress on stderr: one bar on a terminal, one plain line a finished kernel elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TextIO

from jitwarm.amounts import counted
from jitwarm.plan import Plan, PlanItem
from jitwarm.scenario import Case
from jitwarm.warm import Progress

WIDTH = 24


def show_progress(case: Case, plan: Plan, stream: TextIO | None = None) -> Progress:
    """A progress callback for `warm`.

    Says the total number of keys, the current kernel and the seconds so far.
    """
    out = stream or sys.stderr
    left = Counter(item.kernel for item in plan.backend_keys.values())
    title = case.title

    def bar(done: int, total: int, item: PlanItem, seconds: float) -> None:
        filled = WIDTH * done // total
        gauge = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{total}"
        line = f"\r{title}: warming {counted(total, 'key')} {gauge} {seconds:.1f} s {item.kernel}"
        out.write(f"{line:<110.110}" + ("\n" if done == total else ""))
        out.flush()

    def lines(done: int, total: int, item: PlanItem, seconds: float) -> None:
        left[item.kernel] -= 1
        if not left[item.kernel]:
            out.write(
                f"{title}: warmed {done}/{total} keys, {item.kernel} ready after {seconds:.1f} s\n"
            )
            out.flush()

    return bar if out.isatty() else lines
