"""Steps that are really run and timed: a pause is not a compile."""

import time

from jitwarm.faults import Expected, Fault


def short():
    """A step."""


def pause():
    time.sleep(0.3)


FAULT = Fault(
    "step 2 sleeps",
    launches=[short, short, pause, short],
    step_ms="measured",
    expected=[Expected("NOT-JIT", smallest="step 2", count=1)],
)
TWIN = Fault("no step does", launches=[short, short, short], step_ms="measured")
