"""A compile of 30 ms does not explain a step of 400 ms; one of 400 ms does."""

from jitwarm.faults import Expected, Fault, event

KEY = "router[experts=256]"
STEPS = [6.0, 6.1, 406.0, 5.9, 6.0]

FAULT = Fault(
    "most of the step is something else",
    events=[event("compile", KEY, ms=30.0, step=2)],
    step_ms=STEPS,
    expected=[
        Expected("UNDECLARED", kernel="router", count=1),
        Expected("NOT-JIT", smallest="step 2", count=1),
    ],
)
COMPILED = Fault(
    "a step that waited for a compile is not blamed twice",
    events=[event("compile", KEY, ms=400.0, step=2)],
    step_ms=STEPS,
    expected=[Expected("UNDECLARED", kernel="router", count=1)],
)
TWIN = Fault(
    "a warm-up takes time, too, and no step",
    events=[event("compile", KEY, ms=400.0, phase="warm")],
    step_ms=[6.0, 6.1, 6.0, 5.9, 6.0],
)
