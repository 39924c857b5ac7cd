"""F10: a slow step in which nothing was compiled, loaded or tuned is not the compiler's fault."""

from jitwarm.faults import Expected, Fault, event

KEY = "decode_attention[heads=64]"
WARM = event("compile", KEY, phase="warm")

FAULT = Fault(
    "step 3 takes 40 times as long, and no event says why",
    events=[WARM],
    step_ms=[5.0, 5.1, 4.9, 200.0, 5.0, 5.2],
    expected=[Expected("NOT-JIT", smallest="step 3", count=1)],
)
TWIN = Fault(
    "steps as long as each other",
    events=[WARM],
    step_ms=[5.0, 5.1, 4.9, 5.6, 5.0, 5.2],
)
