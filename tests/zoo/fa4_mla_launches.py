"""FA4MLAPrefill on one architecture, as JSON: what is declared for an engine, and what launches
that its limits admit ask the library for. A process has one device: run it in one of its own.

Launches are drawn from the limits alone, so that nothing is shared with the declaration but what a
step is.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys

from fa4_keys import binaries, mla

from jitwarm import device
from jitwarm.backends.fa4.probes import texts_of
from jitwarm.config import SchedulerConfig
from jitwarm.zoo.envelopes.dense_prefill import dense_prefill
from jitwarm.zoo.kernels.fa4_mla_launches import PrefillLaunch, admits
from jitwarm.zoo.kernels.fa4_mla_prefill import (
    CONTEXT_ROWS,
    constants,
    fa4_mla_prefill,
    prefill_limits,
)

CASES = (
    *((16, dims) for dims in ((128, 64, 128), (192, 64, 256), (64, 64, 128), (256, 0, 256))),
    *((4, dims) for dims in ((64, 64, 128), (256, 0, 256))),
    (2, (128, 64, 128)),
    *((1, dims) for dims in ((32, 32, 64), (256, 0, 256))),
)
MODES = ((True, False), (True, True), (False, True))
DRAWN = 300


def engine(heads, dims, rows=512, tokens=8192, longest=65536):
    """An MLA model with these limits."""
    config = mla(*dims, heads=heads)
    model = dataclasses.replace(config.model_config, max_model_len=longest)
    return dataclasses.replace(
        config, model_config=model, scheduler_config=SchedulerConfig(rows, tokens)
    )


def drawn(config, rng):
    """Random launches that a step can make, lengths log-uniform and beside multiples of 64."""
    limits = prefill_limits(config, None, CONTEXT_ROWS)

    def length(most):
        value = int(most ** rng.random())
        return value if rng.random() < 0.5 else value // 64 * 64 + rng.choice((0, 1))

    found = []
    while len(found) < DRAWN:
        causal, lse = rng.choice(MODES)
        max_q = length(limits.tokens)
        max_k = max_q if causal else length(limits.longest)
        batch = length(rng.choice((4, 80, limits.requests)))
        launch = PrefillLaunch(max_q, max_k, batch, causal, lse)
        if admits(limits, launch):
            found.append(launch)
    return found


def asked(config, launches):
    """The keys of the library for some launches, helpers included."""
    texts = set()
    for launch in launches:
        inputs = constants(config) | dataclasses.asdict(launch)
        key = fa4_mla_prefill.dispatch(**inputs, num_splits=0)
        texts.update(texts_of(fa4_mla_prefill.recipe(key)))
    return texts


def counts(heads, dims):
    """Declared keys, main binaries, helpers; of these what no point of the envelopes needs; what
    random launches and what the envelopes need and is not declared.
    """
    # Few heads split in very many ways: fewer new tokens keep their envelopes small.
    config = engine(heads, dims, tokens=8192 if heads > 1 else 1024)
    declared, main, helpers = binaries(fa4_mla_prefill, config)
    points = [p for one in dense_prefill(config) for p in one.parameters["launch"].values]
    needed = asked(config, points)
    random_needs = asked(config, drawn(config, random.Random(heads)))
    every = main | helpers
    return (declared, len(main), len(helpers), len(every - needed), len(random_needs - every),
            len(needed - every))  # fmt: skip


if __name__ == "__main__":
    device.activate("stub", sys.argv[1])
    print(json.dumps({f"{heads} {dims}": counts(heads, dims) for heads, dims in CASES}))
