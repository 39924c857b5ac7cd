"""Three ranks without a common cache folder, of which two compile the same key."""

from jitwarm.faults import Expected, Fault, event

PREFILL, DECODE = "attention[stage='prefill']", "attention[stage='decode']"

FAULT = Fault(
    "ranks 0 and 2 both compile prefill",
    events=[
        event("compile", PREFILL, phase="warm", rank=0),
        event("compile", DECODE, phase="warm", rank=1),
        event("compile", PREFILL, phase="warm", rank=2),
    ],
    expected=[Expected("DUP", kernel="attention", count=1)],
)
TWIN = Fault(
    "each rank has keys of its own",
    events=[
        event("compile", PREFILL, phase="warm", rank=0),
        event("compile", DECODE, phase="warm", rank=1),
        event("disk_hit", PREFILL, phase="warm", rank=2),
    ],
)
