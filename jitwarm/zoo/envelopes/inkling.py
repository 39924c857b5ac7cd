"""Inkling: the attention of global and of local layers, and the slots of their two caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jitwarm.config import EngineConfig
from jitwarm.proof.envelope import Envelope, Ints, Values
from jitwarm.zoo.envelopes.block_tables import slot_mapping
from jitwarm.zoo.envelopes.limits import Limits
from jitwarm.zoo.kernels.inkling_fa4_rel_attention import inkling_fa4_rel_attention
from jitwarm.zoo.kernels.inkling_splits import next_query_len


def inkling_envelopes(config: EngineConfig) -> Iterator[Envelope]:
    """All launches of a step: both kinds of layers for each batch that the scheduler can make."""
    limits = Limits.of(config)
    for kind, is_local in (("global", False), ("local", True)):
        yield slot_mapping(
            config,
            block_size=config.cache_config.block_size,
            site=f"inkling: ComputeSlotMapping of the {kind} layers",
        )
        yield Envelope(
            inkling_fa4_rel_attention,
            f"inkling: InklingFA4RelAttention of the {kind} layers",
            {"query_len": Values(*shortest_queries(limits)), "num_reqs": Ints(1, limits.rows)},
            _inputs(config, is_local=is_local),
            where=lambda query_len, num_reqs: query_len + num_reqs <= limits.tokens + 1,
        )


def shortest_queries(limits: Limits) -> Iterator[int]:
    """The shortest longest query of each bucket.

    A call rounds its longest query up to the bucket before it does anything else with it, and the
    shorter it is, the more other requests fit beside it: so the shortest stands for its bucket.
    """
    query_len = 1
    while query_len <= min(limits.tokens, limits.longest):
        yield query_len
        query_len = next_query_len(query_len)


def _inputs(config: EngineConfig, *, is_local: bool) -> Callable[..., Mapping[str, Any]]:
    fixed = inkling_fa4_rel_attention.layer_inputs(config, is_local=is_local)

    def launch(query_len: int, num_reqs: int) -> Mapping[str, Any]:
        return {**fixed, "query_len": query_len, "num_reqs": num_reqs}

    return launch
