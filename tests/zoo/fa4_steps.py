"""Steps of the models on flash-attention 4 against their envelopes and plans, on one architecture,
as JSON: `python fa4_steps.py sm100 mla-prefill:head_dims=128-64-128`. A process has one device: run
it in one of its own.

Every launch of an envelope has a batch here that makes it; the others are drawn.
"""

from __future__ import annotations

import json
import random
import sys
from itertools import islice
from pathlib import Path

import msgspec
from oracle import needed

from jitwarm import device
from jitwarm.backends.fa4.probes import texts_of
from jitwarm.model import build
from jitwarm.plan import make_plan
from jitwarm.proof.prove import prove_envelopes
from jitwarm.scenario_file import load
from jitwarm.traffic import Batch, batches

ROOT = Path(__file__).parents[2]
TRAFFIC = 40  # steps


def batch_of(launch):
    """A batch whose step makes this launch of dense prefill."""
    others = launch.batch - 1
    own = launch.max_k if not launch.causal else int(launch.return_lse)
    contexts = (0, own, *(0,) * (others - 1)) if others else (own,)
    return Batch((), (launch.max_q, *(1,) * others), contexts)


def dense_batches(model, _rng):
    """One for each point of the envelopes."""
    for envelope in model.envelopes():
        for launch in getattr(envelope.parameters.get("launch"), "values", ()):
            yield batch_of(launch)


def paged_batches(model, rng):
    """For each bucket of queries batches of few, many and any number of requests; any longest query
    of the bucket.
    """
    limits = model.config.scheduler_config
    rows, tokens = limits.max_num_seqs, limits.max_num_batched_tokens
    bucket = 1
    while bucket // 2 < min(tokens, model.config.model_config.max_model_len):
        for count in {1, 2, 3, 4, 8, 16, 31, 32, 63, 64, 125, rows, *rng.sample(range(1, rows), 9)}:
            for query_len in {bucket // 2 + 1, rng.randint(bucket // 2 + 1, bucket)}:
                if count <= rows and query_len + count <= tokens + 1:
                    yield Batch((9,) * (count - 1), (query_len,), (0,))
        bucket *= 2


def keys_of(item):
    """The keys of one item of a plan, those of its helpers included."""
    return texts_of(item.recipe) if item.backend == "fa4" else (item.backend_key,)


def counts(name, selector):
    """Steps that were made for the envelopes, their keys, how many of these no step asked for, and
    what steps and traffic ask for beside them; and what the proof says of the plan.
    """
    loaded = load(ROOT / "scenarios" / f"{name}.toml")
    (case,) = loaded.select((selector,))
    model, registry = build(case, 0, device.current())
    plan = make_plan(registry)
    # A layer of each kind launches what all of them do.
    if hasattr(model, "kinds"):
        model.kinds, directed = tuple(dict.fromkeys(model.kinds)), paged_batches
    else:
        model.layers, directed = 1, dense_batches
    proof = prove_envelopes(model.envelopes(), plan)
    claimed = {key for item in plan.items for key in keys_of(item)}
    for kernel in proof.kernels:
        claimed = (claimed - set(kernel.unreached_keys)) | set(kernel.missing_keys)
    found, steps, _ = needed(model, directed(model, random.Random(3)))
    case = msgspec.structs.replace(
        case, traffic=msgspec.structs.replace(case.traffic, seed=11, step=())
    )
    drawn, _, _ = needed(model, islice(batches(case), TRAFFIC))
    return {
        "steps": steps,
        "keys": len(claimed),
        "not made by a step": len(claimed - found),
        "outside": len((found | drawn) - claimed),
        "missing": sum(kernel.missing for kernel in proof.kernels),
        "unreached": sum(kernel.unreached for kernel in proof.kernels),
        "holds": proof.holds,
    }


if __name__ == "__main__":
    arch = sys.argv[1]
    device.activate("stub", arch)
    found = {}
    for asked in sys.argv[2:]:
        scenario, _, chosen = asked.partition(":")
        found[asked] = counts(scenario, f"{chosen},arch={arch}")
    print(json.dumps(found))
