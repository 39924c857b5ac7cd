"""Steps that are really run and timed: a pause is not a compile.

A busy machine adds tens of milliseconds to any step. Each takes long enough for that to be little.
"""

import time

from jitwarm.faults import Expected, Fault


def short():
    """A step."""
    time.sleep(0.1)


def pause():
    time.sleep(1.0)


FAULT = Fault(
    "step 2 sleeps ten times as long",
    launches=[short, short, pause, short],
    step_ms="measured",
    expected=[Expected("NOT-JIT", smallest="step 2", count=1)],
)
TWIN = Fault("no step does", launches=[short, short, short], step_ms="measured")
