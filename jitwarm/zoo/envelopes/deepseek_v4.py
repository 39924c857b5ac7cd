"""DeepSeek-V4: everything that a step launches, drafts and images included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jitwarm.config import EngineConfig
from jitwarm.proof.envelope import Envelope
from jitwarm.zoo.envelopes.block_tables import compressed_slots, slot_mapping
from jitwarm.zoo.envelopes.combined_rows import combined_rows
from jitwarm.zoo.envelopes.decodes import pack, uniform_decode, unpack
from jitwarm.zoo.envelopes.limits import Limits
from jitwarm.zoo.envelopes.prefills import chunk_metadata, prefill_metadata
from jitwarm.zoo.envelopes.windows import draft_windows, windows
from jitwarm.zoo.kernels.combine_topk_swa_indices import INDEXER_RATIO
from jitwarm.zoo.kernels.compute_slot_mapping import block_table_width
from jitwarm.zoo.steps.deepseek_v4_buffers import INDEXER_DTYPE
from jitwarm.zoo.steps.prefill_chunks import MAX_SCORES


def deepseek_v4_envelopes(
    config: EngineConfig,
    ratios: Iterable[int],
    *,
    window_block_size: int,
    combines: bool,
    max_scores: int = MAX_SCORES,
) -> Iterator[Envelope]:
    """The envelopes of a model whose layers have these compress ratios.

    `config` is the model's own: with its vision tower, where it has one. `combines`: the backend
    gathers its prefill; `max_scores` bounds a chunk of the indexer.
    """
    limits, model = Limits.of(config), config.model_config.hf_config
    distinct = sorted(set(ratios))
    yield slot_mapping(
        config, block_size=window_block_size, site="ComputeSlotMapping of the windows"
    )
    block_size = config.cache_config.block_size
    for ratio in distinct:
        if ratio > 1:
            site = f"ComputeSlotMapping of the states of {ratio} tokens"
            yield slot_mapping(config, block_size=block_size, site=site)
            yield compressed_slots(config, ratio=ratio, block_size=block_size)
    shared: dict[str, int] = {
        "window": model.sliding_window,
        "block_size": window_block_size,
        "table_width": block_table_width(limits.longest, window_block_size),
    }
    yield from windows(limits, **shared, max_image_tokens=model.vision_max_n_token)
    yield prefill_metadata(config, window=model.sliding_window)
    if INDEXER_RATIO in distinct:
        yield uniform_decode(config, block_size=config.cache_config.block_size)
        yield from chunk_metadata(config, ratio=INDEXER_RATIO, max_scores=max_scores)
        yield pack(config, dtype=INDEXER_DTYPE)
        yield unpack(config)
    for ratio in distinct if combines else ():
        yield from combined_rows(
            limits,
            ratio=ratio,
            index_topk=model.index_topk,
            window=model.sliding_window,
            max_image_tokens=model.vision_max_n_token,
        )
    if config.speculative_config is not None:
        yield draft_windows(limits, **shared)
