"""What the steps of a small engine need, by brute force: every batch replayed by the model itself.

Nothing of the envelopes is used here. A batch is a state (decodes, prefills, new tokens of the
prefills) with the ways to spread tokens and contexts over the requests that could matter: all
prefills but one of the same length, the first or the last one with the rest, contexts of none, the
last or all of them at their longest, and for a prefill alone every context there is. The step of
the model cuts it into chunks and slices, and takes its own buffers; the launches that arrive at the
compiler are counted.

Run as a script it replays larger engines (32 rows and 64 tokens), compares with the proof and
prints the counts: `python tests/zoo/oracle.py [NAME...]`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oracle_common import SmallEngine, compare, needed, reached  # noqa: F401 - for the tests

from jitwarm import device
from jitwarm.backends.triton.keytext import parse_key
from jitwarm.backends.triton.naming import import_path
from jitwarm.config import (
    CacheConfig,
    EngineConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
)
from jitwarm.plan import Plan, PlanItem, make_plan
from jitwarm.proof.prove import prove
from jitwarm.registry import JitWarmupRegistry
from jitwarm.traffic import Batch
from jitwarm.zoo.kernels.build_prefill_chunk_metadata import build_prefill_chunk_metadata
from jitwarm.zoo.kernels.convert_req_index_to_global_index import convert_req_index_to_global_index
from jitwarm.zoo.kernels.correct_attn_cp_out import correct_attn_cp_out
from jitwarm.zoo.kernels.prepare_uniform_decode import PrepareUniformDecode
from jitwarm.zoo.models.deepseek_v32 import DeepSeekV32
from jitwarm.zoo.models.dsv4_dcp import DeepSeekV4DCP


@dataclass(frozen=True)
class Engine(SmallEngine):
    """One rank of a small engine.

    `rows`, `tokens` and `longest` are the scheduler's limits, `scores` the bound that slices a
    prefill chunk.
    """

    builder: Any = DeepSeekV32
    rows: int = 5
    tokens: int = 18
    longest: int = 24
    scores: int = 24
    dcp: int = 1
    rank: int = 0
    interleave: int = 1
    block: int = 64
    cache: str = "bf16"
    tp: int = 8
    backend: str = "FLASHMLA_SPARSE"
    prefill: str = ""

    def config(self) -> EngineConfig:
        """Its configuration: one layer (of each kind)."""
        hf = self.builder.hf_config
        kinds = dict.fromkeys(hf.compress_ratios)
        hf = dataclasses.replace(
            hf, num_hidden_layers=max(len(kinds), 1), compress_ratios=tuple(kinds)
        )
        return EngineConfig(
            ModelConfig(max_model_len=self.longest, hf_config=hf),
            ParallelConfig(self.tp, self.dcp, 1, self.interleave, self.rank),
            CacheConfig(self.block, 64, self.cache),
            SchedulerConfig(self.rows, self.tokens),
            attention_backend=self.backend,
            options=(
                ("max_scores", self.scores),
                *((("prefill", self.prefill),) if self.prefill else ()),
                ("stable_topk", "triton"),
            ),
        )

    def batches(self) -> Iterator[Batch]:
        """Every batch of the engine, as far as the lengths of its requests could matter."""
        for decodes in range(self.rows + 1):
            for padded in {0, min(self.rows, self.tokens) - decodes}:
                if decodes and padded >= 0 and decodes + padded <= self.tokens:
                    yield Batch((1,) * decodes, (), (), padded)
            for prefills in range(1, self.rows - decodes + 1):
                for new in range(prefills, self.tokens - decodes + 1):
                    for chunks, contexts in self._spreads(prefills, new):
                        yield Batch((self.longest,) * decodes, chunks, contexts)

    def _spreads(self, prefills: int, new: int) -> Iterator[tuple[tuple[int, ...], ...]]:
        """Chunks and contexts of so many prefills with so many new tokens."""
        if prefills == 1:
            for context in range(self.longest - new + 1):
                yield (new,), (context,)
            return
        # All but one of few tokens (3: one short of a state of 4) or of an even share, the rest in
        # the first or in the last one.
        even = new // prefills
        shapes = set()
        for each in {one for one in (1, 3, even) if one <= even}:
            most = new - (prefills - 1) * each
            shapes |= {(most, *(each,) * (prefills - 1)), (*(each,) * (prefills - 1), most)}
        for chunks in sorted(shapes):
            if max(chunks) > self.longest:
                continue
            longest = tuple(self.longest - chunk for chunk in chunks)
            none = (0,) * prefills
            yield chunks, none
            yield chunks, longest
            yield chunks, (*none[1:], longest[-1])


@dataclass(frozen=True)
class Mutation:
    """A plan of one kernel with keys removed or one added; `what` says which."""

    what: str
    kernel: Any
    items: tuple[PlanItem, ...]


def mutations(
    model: Any, plan: Plan, published: Plan, most: int | None = None
) -> Iterator[Mutation]:
    """For each kernel each value of each field of its keys removed, where that leaves another plan;
    then each key of the published space that the plan lacks added, at most `most` of a kernel.
    """
    for kernel in launched(model):
        name = kernel.kernel_name
        own = [item for item in plan.items if item.kernel == name]
        values: dict[tuple[str, str | None], list[PlanItem]] = defaultdict(list)
        for item in own:
            for field, value in fields_of(item).items():
                values[field, value].append(item)
        tried: set[tuple[str, ...]] = set()
        for (field, value), removed in values.items():
            kept = tuple(item for item in own if item not in removed)
            keys = tuple(item.backend_key for item in kept)
            if keys not in tried:
                tried.add(keys)
                yield Mutation(f"{name} without {field} {value}", kernel, kept)
        have = {item.backend_key for item in own}
        more = [
            item for item in published.items if item.kernel == name and item.backend_key not in have
        ]
        for item in more[:: -(-len(more) // most) if most and more else 1]:
            yield Mutation(f"{name} with {item.declared}", kernel, (*own, item))


def launched(model: Any) -> list[Any]:
    """The kernels that a model's envelopes launch, each once."""
    return list({id(one.kernel): one.kernel for one in model.envelopes()}.values())


def fields_of(item: PlanItem) -> dict[str, str]:
    """The fields of an item's backend key."""
    return parse_key(item.backend_key)[1]


def by_oracle(mutation: Mutation, found: set[str]) -> tuple[set[str], set[str]]:
    """(missing, unreached) keys of a mutated plan, from the keys that the replay needed."""
    path = import_path(mutation.kernel.kernel) + "["
    needs = {key for key in found if key.startswith(path)}
    planned = {item.backend_key for item in mutation.items}
    return needs - planned, planned - needs


def by_proof(mutation: Mutation, model: Any) -> tuple[set[str], set[str]]:
    """The same by the proof of the kernel's envelopes."""
    own = [one for one in model.envelopes() if one.kernel is mutation.kernel]
    (proof,) = prove(mutation.kernel, mutation.items, own).kernels
    return set(proof.missing_keys), set(proof.unreached_keys)


def published(model: Any) -> Plan:
    """The spaces of the engine that the kernels come from."""
    registry = JitWarmupRegistry(model.config)
    with registry.activate():
        PrepareUniformDecode.register_warmup(as_published=True)
        build_prefill_chunk_metadata.register_warmup(as_published=True)
        convert_req_index_to_global_index.register_warmup(as_published=True)
        heads = {"num_heads": model.local_heads, "head_dim": 512, "is_base_e": True}
        correct_attn_cp_out.register_warmup(output_dtype="bfloat16", **heads, as_published=True)
    return make_plan(registry)


DSV4 = {
    "builder": DeepSeekV4DCP,
    "interleave": 128,
    "block": 256,
    "rows": 3,
    "longest": 130,  # one state of 128
    "scores": 130,
}
ENGINES = {
    "deepseek-v3.2 dcp=1": Engine(),
    "deepseek-v3.2 dcp=1 fp8": Engine(cache="fp8"),
    "deepseek-v3.2 dcp=2 rank 0": Engine(dcp=2),
    "deepseek-v3.2 dcp=2 rank 1": Engine(dcp=2, rank=1),
    "dsv4-dcp dcp=2 rank 0": Engine(**DSV4, dcp=2),
    "dsv4-dcp dcp=2 rank 1": Engine(**DSV4, dcp=2, rank=1),
}


# The limits of the full comparison, minutes an engine.
FULL: dict[Any, dict[str, int]] = {
    DeepSeekV32: {"rows": 32, "tokens": 64, "longest": 64, "scores": 64},
    DeepSeekV4DCP: {"rows": 8, "tokens": 24},
}


def main() -> int:
    """Compare all engines at full size, then all mutations; returns 1 if anything differs."""
    active = device.activate("stub", "sm90")
    differ = 0
    for name in sys.argv[1:] or ENGINES:
        small = ENGINES[name]
        engine = dataclasses.replace(small, **FULL[small.builder])
        model, plan, found, differs = compare(name, engine, active)
        differ += differs
        agreed: Counter[str] = Counter()
        for mutation in mutations(model, plan, published(model)):
            missing, unreached = by_oracle(mutation, found)
            if by_proof(mutation, model) == (missing, unreached):
                agreed["missing" if missing else "unreached" if unreached else "no finding"] += 1
            else:
                print("    differ:", mutation.what)
                differ += 1
        print(f"    mutations, agreed: {dict(agreed)}", flush=True)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
