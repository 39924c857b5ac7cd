"""Inkling: 66 attention layers whose scores get a learned bias by relative position, every sixth
global, the others within a window of 512 tokens.

What is real: which layer and which block table registers what, the buffers and how they are sliced,
the paged cache of each kind of layer, the order and arguments of the launches, on this rank of a
tensor-parallel group. With the option `tokens` on a GPU, token ids go in and come out: see
`inkling_tokens`. Without it the inputs of the attention kernel are generated once and all layers of
a kind share one cache. What is left out: experts, and the parts of other ranks.

Launch order of a step. Once for each of the two KV-cache groups, global and local:
ComputeSlotMapping. In every layer: InklingFA4RelAttention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jitwarm.backends.fa4 import library
from jitwarm.config import EngineConfig, HFConfig
from jitwarm.device import Device
from jitwarm.errors import ScenarioError
from jitwarm.proof.envelope import Envelope
from jitwarm.registry import owner
from jitwarm.traffic import Batch
from jitwarm.zoo.envelopes.inkling import inkling_envelopes
from jitwarm.zoo.kernels.inkling_fa4_rel_attention import inkling_fa4_rel_attention
from jitwarm.zoo.models.inkling_attention import GROUPS, AttentionBuffers, StepInputs, layer_kinds
from jitwarm.zoo.models.inkling_tokens import TokenStack
from jitwarm.zoo.models.options import BF16, Value, model_options, refuse_unsupported
from jitwarm.zoo.steps.block_tables import (
    PLACEHOLDER_BLOCK_SIZE,
    BlockTable,
    register_block_table,
)
from jitwarm.zoo.steps.paged_slots import check_own_blocks
from jitwarm.zoo.steps.step_buffers import BatchBuffers

MODEL = "inkling"
LAYERS = 66
OPTIONS: dict[str, tuple[Value, ...]] = {
    "tokens": (False, True),  # on a GPU: token ids to token ids
    "scale": (1, 2, 4, 8, 16),  # with tokens: divides sizes that only matrix products see
}


class Inkling:
    """One rank of the model."""

    hf_config = HFConfig(
        num_hidden_layers=LAYERS,
        num_attention_heads=64,
        num_key_value_heads=8,
        local_num_key_value_heads=16,
        head_dim=128,
        hidden_size=6144,
        vocab_size=201_024,
        rel_extent=1024,
        d_rel=16,
        sliding_window=512,
        local_layer_ids=tuple(index for index in range(LAYERS) if (index + 1) % 6),
    )

    def __init__(self, config: EngineConfig, device: Device) -> None:
        """Build every layer; each registers its kernel.

        Raises `ScenarioError` for options, heads and parallelism that the model does not have,
        and `MissingExtraError` without flash-attn-4.
        """
        self.options = model_options(config, OPTIONS, model=MODEL)
        _check(config)
        # The kernel takes one dtype for queries and cache.
        refuse_unsupported(config, MODEL, cache_dtypes=BF16)
        if self.options["tokens"]:
            check_own_blocks(config, MODEL, config.cache_config.block_size)
        # Here, so that its import of seconds belongs to no arm's first launch.
        library.interface(f"model {MODEL}")
        self.config, self.device = config, device
        self.kinds = layer_kinds(config)
        self.layers = len(self.kinds)
        self.emits_token = self.options["tokens"] and device.kind == "cuda"
        register_block_table(config, 0, PLACEHOLDER_BLOCK_SIZE)
        for index in range(self.layers):
            with owner(f"model.layers.{index}.attn"):
                inkling_fa4_rel_attention.register_warmup()

    def bind_kv_cache(self) -> None:
        """The cache is allocated, its geometry is known: a block table for each kind of layers."""
        config, place = self.config, self.device.torch_device
        self.buffers = BatchBuffers(config, place)
        self.tables = [
            BlockTable(config, group, config.cache_config.block_size, place)
            for group in range(len(GROUPS))
        ]
        generate = self.device.kind == "cuda"
        self.attention = AttentionBuffers(config, place, generate=generate)
        self.stack = None
        if self.emits_token:
            scale = self.options["scale"]
            self.stack = TokenStack(config, place, self.attention, self.tables, scale)
        self.caches = {} if self.stack else self.attention.shared_caches()

    def set_up(self, headline: Sequence[Batch]) -> None:
        """Every torch operator of a step once, in the shapes of the batches that are timed."""
        for batch in headline:
            self.buffers.copy(batch)
            if self.stack:
                self.stack.rehearse(StepInputs(batch, self.buffers, self.tables))

    def envelopes(self) -> Iterator[Envelope]:
        """Everything that a step can launch."""
        yield from inkling_envelopes(self.config)

    def step(self, batch: Batch) -> None:
        """Launch the kernels of one step."""
        self.buffers.copy(batch)
        for table in self.tables:
            table.map(self.buffers, batch)
        step = StepInputs(batch, self.buffers, self.tables)
        if self.stack:
            self.stack.run(step, inkling_fa4_rel_attention)
            return
        calls = {
            kind: self.attention.arguments(kind, step, cache) for kind, cache in self.caches.items()
        }
        for kind in self.kinds:
            inkling_fa4_rel_attention(**calls[kind])


def _check(config: EngineConfig) -> None:
    model, parallel = config.model_config.hf_config, config.parallel_config
    tp, heads = parallel.tensor_parallel_size, model.num_attention_heads

    def refuse(path: str, problem: str) -> None:
        raise ScenarioError(f"model {MODEL}", path, problem)

    if config.attention_backend:
        refuse("$.attention_backend", "this model has only one: leave the field out")
    if heads % tp:
        refuse("$.parallel.tp", f"tp {tp} does not divide {heads} heads")
    for kv_heads in (model.num_key_value_heads, model.local_num_key_value_heads):
        if kv_heads % tp and tp % kv_heads:
            refuse("$.parallel.tp", f"tp {tp} and {kv_heads} key heads: one must divide the other")
