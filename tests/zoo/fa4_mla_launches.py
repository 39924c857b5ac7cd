"""What FA4MLAPrefill declares with all classes on SM100, and what of the launches of many batches
and lengths is not in it, as JSON. A process has one device: run it in one of its own.
"""

from __future__ import annotations

import itertools
import json

from fa4_keys import binaries, mla

from jitwarm import device
from jitwarm.backends.fa4.probes import texts_of
from jitwarm.zoo.kernels.fa4_mla_prefill import fa4_mla_prefill

CASES = (
    *((16, dims) for dims in ((128, 64, 128), (192, 64, 256), (64, 64, 128), (256, 0, 256))),
    *((4, dims) for dims in ((64, 64, 128), (256, 0, 256))),
    (2, (128, 64, 128)),
    *((1, dims) for dims in ((32, 32, 64), (256, 0, 256))),
)
BATCHES = (1, 2, 3, 4, 5, 9, 31, 32, 37, 62, 63, 74, 75, 200)
QUERIES = (1, 129, 257)
KEYS = (128, 640, 2048, 3000, 6000, 16384, 65536)


def launched(heads, nope, rope, value):
    """Binaries of causal launches with log-sum-exps."""
    for batch, max_q, max_k in itertools.product(BATCHES, QUERIES, KEYS):
        probe = fa4_mla_prefill.dispatch(
            num_heads=heads, qk_nope_head_dim=nope, qk_head_dim=nope + rope, v_head_dim=value,
            dtype="bfloat16", max_q=max_q, max_k=max_k, causal=True, return_lse=True, num_splits=0,
            batch=batch,
        )  # fmt: skip
        yield from texts_of(fa4_mla_prefill.recipe(probe))


def counts(heads, dims):
    """Declared keys, main binaries, helpers, missed binaries."""
    declared, main, helpers = binaries(fa4_mla_prefill, mla(*dims, heads=heads), all_classes=True)
    missed = set(launched(heads, *dims)) - main - helpers
    return declared, len(main), len(helpers), len(missed)


if __name__ == "__main__":
    device.activate("stub", "sm100")
    print(json.dumps({f"{heads} {dims}": counts(heads, dims) for heads, dims in CASES}))
