"""What the oracles share: an engine is built, its batches are replayed by the model itself, and the
keys that arrive at the compiler are compared with the proof and the plan.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from jitwarm.config import EngineConfig
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import Plan, make_plan
from jitwarm.proof.prove import prove_envelopes
from jitwarm.registry import JitWarmupRegistry
from jitwarm.traffic import Batch


class SmallEngine:
    """One rank of a small engine; a subclass has a `builder` (the model's class), and says its
    configuration and which batches it may get.
    """

    builder: Any

    def config(self) -> EngineConfig:
        """Its configuration."""
        raise NotImplementedError

    def batches(self) -> Iterator[Batch]:
        """Every batch, as far as the lengths of its requests could matter."""
        raise NotImplementedError

    def build(self, active: Any) -> tuple[Any, Plan]:
        """The model, its cache bound, and the plan of what it registered."""
        config = self.config()
        registry = JitWarmupRegistry(config)
        with registry.activate():
            model = self.builder(config, active)
        with registry.activate():
            model.bind_kv_cache()
        return model, make_plan(registry)


def needed(model: Any, batches: Iterator[Batch]) -> tuple[set[str], int, int]:
    """The backend keys that the steps ask for, and how many steps and launches that took."""
    steps = 0
    with Monitor("record", count_hits=True, null_kernels=True) as monitor:
        for batch in batches:
            model.step(batch)
            steps += 1
        launches = monitor.launches()
    return set(launches), steps, sum(launches.values())


def reached(model: Any) -> set[str]:
    """The backend keys that the envelopes of a model reach, by the proof."""
    proof = prove_envelopes(model.envelopes(), ())
    assert all(one.verdict == "PROVED" for one in proof.kernels), proof
    return {key for one in proof.kernels for key in one.missing_keys}


def compare(name: str, engine: SmallEngine, active: Any) -> tuple[Any, Plan, set[str], bool]:
    """Replay an engine and print the counts and every key on which the replay, the proof and the
    plan differ; returns the model, its plan, the keys that it needs, and whether any differs.
    """
    start = time.perf_counter()
    model, plan = engine.build(active)
    found, steps, launches = needed(model, engine.batches())
    seconds = time.perf_counter() - start
    claimed, planned = reached(model), set(plan.backend_keys)
    print(
        f"{name}: {steps} steps, {launches} launches, {len(found)} keys in {seconds:.0f} s; "
        f"proof {len(claimed)}, plan {len(planned)}; "
        f"missed by the proof {len(found - claimed)}, invented {len(claimed - found)}, "
        f"missing {len(found - planned)}, unreached {len(planned - found)}",
        flush=True,
    )
    for key in sorted((found ^ claimed) | (found ^ planned)):
        print("   ", "needed" if key in found else "not needed", key)
    return model, plan, found, found != claimed or found != planned
