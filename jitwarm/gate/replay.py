"""Replay the traffic of one rank by its keys: no kernel is compiled, and what its launches ask for
is held against the plan.
"""

from __future__ import annotations

from jitwarm.jobs import RankReplay
from jitwarm.judge.planned import path_of
from jitwarm.model import Model
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import Plan
from jitwarm.proof.plan import ProofPlan
from jitwarm.record import MissRecord
from jitwarm.scenario import Case
from jitwarm.traffic import replay


def replay_keys(case: Case, rank: int, model: Model, plan: Plan, steps: int) -> RankReplay:
    """Make `steps` steps of null kernels.

    A kernel that nobody planned, in a plan with kernels that own their compile, may be what one of
    those launches inside: whether it is warmed shows in `jitwarm run` only, so it is not judged.
    """
    batches = replay(case, steps).batches
    with Monitor("record", rank=rank, count_hits=True, null_kernels=True) as monitor:
        for index, batch in enumerate(batches):
            monitor.step = index
            model.step(batch)
        launched = monitor.launches()
    planned = ProofPlan(plan)
    paths = {path_of(key) for key in planned.texts}
    owns_compile = any(item.backend == "opaque" for item in planned.ready.values())
    missing = [key for key in launched if key not in planned.ready]
    untold = [key for key in missing if owns_compile and path_of(key) not in paths]
    return RankReplay(
        rank=rank,
        steps=len(batches),
        launches=sum(launched.values()),
        needed=len(launched),
        misses=tuple(
            MissRecord(planned.name(key), key, -1, launched[key], 0.0, planned.explain(key), rank)
            for key in missing
            if key not in untold
        ),
        untold=tuple(untold),
    )
