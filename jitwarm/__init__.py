"""jitwarm warms kernels that compile on first use, and proves that nothing compiles after start-up.

    declare -> register -> plan -> warm -> launch -> observe -> judge -> report

Each step is a module or package of that name: `jitwarm.declare` has what a kernel author writes,
`jitwarm.contract` the class contract of the field, `jitwarm.warm.warm` makes a plan ready. The
names below are for the engine side; they are loaded on first use, so that `import jitwarm` imports
neither torch nor Triton.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "JitWarmupRegistry": "jitwarm.registry",
    "owner": "jitwarm.registry",
    "make_plan": "jitwarm.plan",
    "Plan": "jitwarm.plan",
    "Monitor": "jitwarm.observe.monitor",
    "expect_no_compiles": "jitwarm.expect",
    "kernel_warmup": "jitwarm.startup",
    "prove": "jitwarm.proof.prove",
    "prove_envelopes": "jitwarm.proof.prove",
    "Envelope": "jitwarm.proof.envelope",
    "Ints": "jitwarm.proof.envelope",
    "Values": "jitwarm.proof.envelope",
    "KeyFunction": "jitwarm.proof.keyfunction",
    "affine": "jitwarm.proof.forms",
    "next_power_of_two": "jitwarm.proof.forms",
    "pointer": "jitwarm.proof.forms",
}

__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604 - names from one table, so that the two cannot drift apart


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'jitwarm' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
