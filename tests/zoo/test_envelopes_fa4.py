"""The envelopes of Inkling and of dense MLA prefill against steps of the models, each architecture
in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fa4_keys import inkling

from jitwarm.zoo.envelopes.inkling import shortest_queries
from jitwarm.zoo.envelopes.limits import Limits
from jitwarm.zoo.kernels.inkling_fa4_rel_attention import inkling_fa4_rel_attention as attend

HERE = Path(__file__).parent
# By architecture and case the keys that launches need: main kernels and helpers of the attention,
# and the slot mapping.
CASES = {
    "sm90": {"mla-prefill:head_dims=128-64-128": 6 + 0 + 1, "inkling:tp=8": 4 + 0 + 1},
    "sm100": {
        "mla-prefill:head_dims=128-64-128": 11 + 2 + 1,
        "mla-prefill:head_dims=192-64-256": 10 + 2 + 1,
        "mla-prefill:head_dims=64-64-128": 14 + 4 + 1,
        "inkling:tp=1": 8 + 2 + 1,
        "inkling:tp=8": 8 + 6 + 1,
    },
}


@pytest.mark.cutedsl
@pytest.mark.parametrize("arch", CASES)
def test_steps_envelopes_and_plan_have_the_same_keys(arch):
    """A batch for each launch of the envelopes asks for all of their keys, and neither these nor
    traffic for another; the plan has the same ones.
    """
    pytest.importorskip("flash_attn.cute")
    done = subprocess.run(
        [sys.executable, HERE / "fa4_steps.py", arch, *CASES[arch]],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(HERE.parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert all(counts.pop("steps") > 100 for counts in found.values())
    exact = {"not made by a step": 0, "outside": 0, "missing": 0, "unreached": 0, "holds": True}
    assert found == {case: {"keys": keys, **exact} for case, keys in CASES[arch].items()}


@pytest.mark.parametrize("can_split", [False, True])
def test_the_shortest_query_stands_for_its_bucket(can_split):
    fixed = {
        "is_local": False, "num_heads": 8, "num_kv_heads": 1, "head_dim": 128, "rel_extent": 1024,
        "dtype": "bfloat16", "kv_dtype": "bfloat16", "block_size": 16, "max_kv_len": 131072,
        "can_split": can_split,
    }  # fmt: skip
    shortest = list(shortest_queries(Limits(256, 600, 131072)))
    assert shortest == [1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513]
    keys = {
        (query, reqs): attend.dispatch(**fixed, query_len=query, num_reqs=reqs)
        for query in shortest
        for reqs in (1, 2, 7, 31, 32, 300)
    }
    for query in range(1, 601):
        alike = max(one for one in shortest if one <= query)
        for reqs in (1, 2, 7, 31, 32, 300):
            own = attend.dispatch(**fixed, query_len=query, num_reqs=reqs)
            assert own == keys[alike, reqs]


def test_no_query_is_longer_than_the_longest_context(stub):
    def buckets(longest):
        keys = attend.get_warmup_keys(inkling(1, 4, 64, max_model_len=longest))
        return sorted({key.max_seqlen_q for key in keys})

    assert buckets(64) == buckets(1 << 20) == [1, 2, 4, 8, 16, 32, 64]
    assert buckets(33) == [1, 2, 4, 8, 16, 32, 64]  # 33 of up to 64
    assert buckets(32) == [1, 2, 4, 8, 16, 32]
    assert buckets(1) == [1]
    assert list(shortest_queries(Limits(4, 64, 32))) == [1, 2, 3, 5, 9, 17]
