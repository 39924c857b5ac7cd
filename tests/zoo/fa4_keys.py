"""Keys of the two flash-attn-4 kernels on one architecture, as JSON: `python fa4_keys.py sm100
small mla`.

A process has one device, so tests that want another architecture than theirs ask another process.
"""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import torch

from jitwarm import device, keys
from jitwarm.backends import backend_of
from jitwarm.backends.fa4 import library
from jitwarm.backends.fa4.probes import texts_of
from jitwarm.config import (
    CacheConfig,
    EngineConfig,
    HFConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
)
from jitwarm.declare import NoKeys
from jitwarm.observe.monitor import Monitor
from jitwarm.zoo.kernels.fa4_mla_prefill import fa4_mla_prefill
from jitwarm.zoo.kernels.inkling_fa4_rel_attention import inkling_fa4_rel_attention

HERE = Path(__file__).parent
MAX_MODEL_LEN = 131072
SMALL, LARGE = (256, 8192), (2048, 16384)
HEADS, GLOBAL_KV, LOCAL_KV, DIM, EXTENT, WINDOW = 64, 8, 16, 128, 1024, 512
MLA_DIMS = ((128, 64, 128), (192, 64, 256), (64, 64, 128), (256, 0, 256))


def inkling(tp=1, seqs=256, tokens=8192, *, max_model_len=MAX_MODEL_LEN, **more):
    """Inkling's flagship: 64 heads, 8 KV heads (16 on local layers)."""
    numbers = {
        "num_attention_heads": HEADS,
        "num_key_value_heads": GLOBAL_KV,
        "local_num_key_value_heads": LOCAL_KV,
        "head_dim": DIM,
        "rel_extent": EXTENT,
        "sliding_window": WINDOW,
    } | {name: value for name, value in more.items() if hasattr(HFConfig(), name)}
    return EngineConfig(
        model_config=ModelConfig(max_model_len=max_model_len, hf_config=HFConfig(**numbers)),
        parallel_config=ParallelConfig(tensor_parallel_size=tp),
        cache_config=CacheConfig(block_size=16, cache_dtype=more.get("cache_dtype", "bf16")),
        scheduler_config=SchedulerConfig(seqs, tokens),
    )


def mla(nope=128, rope=64, v=128, *, heads=16, dtype="bfloat16", options=()):
    """An MLA model's attention numbers."""
    hf = HFConfig(
        num_attention_heads=heads, qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=v
    )
    return EngineConfig(model_config=ModelConfig(dtype=dtype, hf_config=hf), options=options)


def binaries(kernel, config, **kwargs):
    """(declared keys, main binaries, helper binaries) of a registration."""
    found = kernel.get_warmup_keys(config, **kwargs)
    if isinstance(found, NoKeys):
        return 0, set(), set()
    texts = [texts_of(kernel.recipe(key)) for key in found]
    return len(found), {each[0] for each in texts}, {h for each in texts for h in each[1:]}


def summary(counts):
    """What is compared: numbers, and a digest of the texts."""
    declared, main, helpers = counts
    kinds = Counter(text.partition("[")[0].rpartition(".")[2] for text in helpers)
    digest = keys.key_id("\n".join(sorted(main | helpers)))
    return {"declared": declared, "main": len(main), "helpers": dict(sorted(kinds.items())),
            "digest": digest}  # fmt: skip


def inkling_launch(tp, query_lens, *, is_local, total=None):
    """One launch of a layer on tensors without memory."""
    heads, kv_heads = HEADS // tp, max(1, (LOCAL_KV if is_local else GLOBAL_KV) // tp)
    tokens, reqs = total or sum(query_lens), len(query_lens)

    def empty(*shape, dtype=torch.bfloat16):
        return torch.empty(*shape, dtype=dtype, device="meta")

    cache = empty(99, 2, 16, kv_heads, DIM)
    inkling_fa4_rel_attention(
        empty(tokens, heads, DIM),
        cache[:, 0],
        cache[:, 1],
        empty(reqs + 3, 40, dtype=torch.int32),
        empty(reqs + 3, dtype=torch.int32),
        empty(reqs + 4, dtype=torch.int32),
        empty(tokens, heads, WINDOW if is_local else EXTENT),
        is_local=is_local,
        max_query_len=max(query_lens),
        max_kv_len=WINDOW if is_local else MAX_MODEL_LEN,
        num_reqs=reqs,
    )


def batches(rng, seqs, tokens, count):
    """Batches that the scheduler could make: decodes, prefills, both."""
    for _ in range(count):
        decodes = rng.choice((0, 1, 2, 17, rng.randint(1, seqs)))
        prefills = rng.choice((0, 1, 1, 3)) if decodes else rng.choice((1, 2))
        prefills = min(prefills, seqs - decodes)
        room = tokens - decodes
        lens = [1] * decodes
        for _ in range(prefills):
            longest = max(1, room // max(1, prefills))
            lens.append(rng.choice((1, min(longest, 1 << rng.randrange(14)), longest)))
        if lens and sum(lens) <= tokens:
            yield lens


def unknown_launches(tp, seqs, tokens, count, seed):
    """Binaries that random launches ask for and the declaration does not have."""
    _, main, helpers = binaries(inkling_fa4_rel_attention, inkling(tp, seqs, tokens))
    rng = random.Random(seed)
    with Monitor("record", null_kernels=True, count_hits=True) as monitor:
        for query_lens in batches(rng, seqs, tokens, count):
            for is_local in (False, True):
                inkling_launch(tp, query_lens, is_local=is_local)
        launched = monitor.launches()
    return sorted(set(launched) - main - helpers), len(set(launched) & main)


def inkling_counts(limits):
    """By TP."""
    return {
        f"TP{tp}": summary(binaries(inkling_fa4_rel_attention, inkling(tp, *limits)))
        for tp in (1, 2, 4, 8)
    }


def mla_counts():
    """As published, by head dims, and whether splits are forbidden."""
    return {
        f"{dims} {invariant}": summary(
            binaries(fa4_mla_prefill, mla(*dims), batch_invariant=invariant, as_published=True)
        )
        for dims in MLA_DIMS
        for invariant in (False, True)
    }


def compiled():
    """One real compile: its events, and whether the number of SMs was asked for meanwhile."""
    recipe = fa4_mla_prefill.recipe(fa4_mla_prefill.get_warmup_keys(mla(64, 0, 64))[0])
    with Monitor("record") as monitor:
        backend_of(recipe).compile(recipe)
    events = [(event.kind, event.key) for event in monitor.events]
    return {"events": events, "asked": library.HardwareStandIn.asked > 0}


PARTS = {
    "small": lambda: inkling_counts(SMALL),
    "large": lambda: inkling_counts(LARGE),
    "mla": mla_counts,
    "launches": lambda: [unknown_launches(tp, *LARGE, 50, seed=tp) for tp in (1, 8)],
    "compiled": compiled,
}


@functools.cache
def asked(arch, hash_seed, *parts):
    """The answers of a process of its own."""
    root = HERE.parents[1]
    env = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, __file__, arch, *parts],
        capture_output=True, text=True, env=env, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


if __name__ == "__main__":
    device.activate("stub", sys.argv[1])
    print(json.dumps({part: PARTS[part]() for part in sys.argv[2:]}))
